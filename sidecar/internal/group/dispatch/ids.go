package dispatch

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
