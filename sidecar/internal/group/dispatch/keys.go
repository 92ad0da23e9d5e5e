package dispatch

// keys is the order of events by key: for each key with unsettled events their list, in log order.
// The first of a list may be delivered, the others wait.
type keys map[string]*keyQueue

type keyQueue struct{ head, tail *Event }

// add puts an event behind the earlier ones of its key, and reports whether it is the first.
func (k keys) add(e *Event) (first bool) {
	key := e.Record.Key
	if key == "" {
		return true
	}
	q := k[key]
	if q == nil {
		k[key] = &keyQueue{head: e, tail: e}
		return true
	}
	q.tail.next = e
	q.tail = e
	return false
}

// first reports whether no earlier event of its key is unsettled.
func (k keys) first(e *Event) bool {
	return e.Record.Key == "" || k[e.Record.Key].head == e
}

// remove takes out a settled event and returns the one that has become the key's first, if another
// has. Without key order events may settle in the middle of the list; those leave once they are at
// its head.
func (k keys) remove(key string, e *Event) (head *Event) {
	if key == "" {
		return nil
	}
	q := k[key]
	if q.head != e {
		return nil
	}
	for q.head != nil && q.head.State == Settled {
		q.head, q.head.next = q.head.next, nil
	}
	if q.head == nil {
		delete(k, key)
	}
	return q.head
}
