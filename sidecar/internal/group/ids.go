package group

// ids finds unsettled events by id. One id can stand for several of them: once
// its deduplication window is over it may be published again. Since members
// settle by id, at most one of those twins is in flight at a time.
type ids map[string]*entry

func (x ids) add(e *entry) {
	e.twin = x[e.rec.ID]
	x[e.rec.ID] = e
}

func (x ids) remove(e *entry) {
	id := e.rec.ID
	head := x[id]
	switch {
	case head == e && e.twin == nil:
		delete(x, id)
	case head == e:
		x[id] = e.twin
	default:
		for head.twin != e {
			head = head.twin
		}
		head.twin = e.twin
	}
	e.twin = nil
}

// inflight finds the event with this id that is in flight, or nil.
func (x ids) inflight(id string) *entry {
	for e := x[id]; e != nil; e = e.twin {
		if e.state == inflight {
			return e
		}
	}
	return nil
}
