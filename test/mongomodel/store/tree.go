package store

// An owner may change its nodes in place. Nodes of another owner are shared, and copied before they
// are changed.
type owner struct{ _ byte }

// A tree is an ordered set that is copied in constant time: a treap (Seidel and Aragon, 1996) whose
// shared nodes are never changed.
type tree[T any] struct {
	root    *treeNode[T]
	size    int
	compare func(a, b T) int
	// priority is the same for the same item, and else as if random: it keeps the tree balanced.
	priority func(T) uint64
}

type treeNode[T any] struct {
	item        T
	priority    uint64
	left, right *treeNode[T]
	owner       *owner
}

func (n *treeNode[T]) own(o *owner) *treeNode[T] {
	if n.owner == o {
		return n
	}
	owned := *n
	owned.owner = o
	return &owned
}

func (t *tree[T]) get(probe T) (item T, found bool) {
	for n := t.root; n != nil; {
		switch c := t.compare(probe, n.item); {
		case c == 0:
			return n.item, true
		case c < 0:
			n = n.left
		default:
			n = n.right
		}
	}
	return item, false
}

// set adds an item, or replaces the one that is equal.
func (t *tree[T]) set(o *owner, item T) { t.root = t.insert(o, t.root, item) }

func (t *tree[T]) insert(o *owner, n *treeNode[T], item T) *treeNode[T] {
	if n == nil {
		t.size++
		return &treeNode[T]{item: item, priority: t.priority(item), owner: o}
	}
	n = n.own(o)
	switch c := t.compare(item, n.item); {
	case c == 0:
		n.item = item
	case c < 0:
		n.left = t.insert(o, n.left, item)
		if up := n.left; up.priority > n.priority {
			n.left, up.right = up.right, n
			return up
		}
	default:
		n.right = t.insert(o, n.right, item)
		if up := n.right; up.priority > n.priority {
			n.right, up.left = up.left, n
			return up
		}
	}
	return n
}

func (t *tree[T]) remove(o *owner, item T) {
	if _, found := t.get(item); found {
		t.root = t.cut(o, t.root, item)
		t.size--
	}
}

func (t *tree[T]) cut(o *owner, n *treeNode[T], item T) *treeNode[T] {
	c := t.compare(item, n.item)
	if c == 0 {
		return join(o, n.left, n.right)
	}
	n = n.own(o)
	if c < 0 {
		n.left = t.cut(o, n.left, item)
	} else {
		n.right = t.cut(o, n.right, item)
	}
	return n
}

// join makes one tree of two, all of whose items are in order.
func join[T any](o *owner, a, b *treeNode[T]) *treeNode[T] {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	case a.priority > b.priority:
		a = a.own(o)
		a.right = join(o, a.right, b)
		return a
	}
	b = b.own(o)
	b.left = join(o, a, b.left)
	return b
}

// scan calls yield with the items in order, or against it, until it returns false. It begins after
// the items that skip is true for, which are the first ones in that direction; nil skips none.
func (t *tree[T]) scan(reverse bool, skip, yield func(T) bool) { t.root.scan(reverse, skip, yield) }

func (n *treeNode[T]) scan(reverse bool, skip, yield func(T) bool) bool {
	if n == nil {
		return true
	}
	near, far := n.left, n.right
	if reverse {
		near, far = far, near
	}
	if skip != nil && skip(n.item) {
		return far.scan(reverse, skip, yield)
	}
	return near.scan(reverse, skip, yield) && yield(n.item) && far.scan(reverse, nil, yield)
}

// spread makes numbers that follow each other look random (the finalizer of SplitMix64, Steele, Lea
// and Flood 2014).
func spread(n uint64) uint64 {
	n += 0x9e3779b97f4a7c15
	n = (n ^ n>>30) * 0xbf58476d1ce4e5b9
	n = (n ^ n>>27) * 0x94d049bb133111eb
	return n ^ n>>31
}
