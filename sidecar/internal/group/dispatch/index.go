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

// ids finds unsettled events by id. One id can stand for several of them: once its deduplication
// window is over it may be published again. Since members settle by id, at most one of them is in
// flight at a time.
type ids map[string]*Event

func (x ids) add(e *Event) {
	e.sameID = x[e.Record.ID]
	x[e.Record.ID] = e
}

func (x ids) remove(e *Event) {
	id := e.Record.ID
	head := x[id]
	switch {
	case head == e && e.sameID == nil:
		delete(x, id)
	case head == e:
		x[id] = e.sameID
	default:
		for head.sameID != e {
			head = head.sameID
		}
		head.sameID = e.sameID
	}
	e.sameID = nil
}

// inflight finds the event with this id that is in flight, or nil.
func (x ids) inflight(id string) *Event {
	for e := x[id]; e != nil; e = e.sameID {
		if e.State == InFlight {
			return e
		}
	}
	return nil
}
