package sluice

import "slices"

// dispatcher decides which event is handled next: in the order in which they
// came, and those of one key one after the other. The subscription's lock guards
// it.
type dispatcher struct {
	ready   []*item
	lanes   map[string]*keyLane
	waiting int // items that no handler has yet
}

// keyLane is a key of which one event is ready or with a handler, and the events
// behind that one.
type keyLane struct{ behind []*item }

// place adds an item.
func (d *dispatcher) place(it *item) {
	d.waiting++
	if key := it.message.Event.Key; key != "" {
		if lane := d.lanes[key]; lane != nil {
			lane.behind = append(lane.behind, it)
			return
		}
		if d.lanes == nil {
			d.lanes = map[string]*keyLane{}
		}
		d.lanes[key] = new(keyLane)
	}
	d.ready = append(d.ready, it)
}

// next takes the item that is to be handled next, or nil.
func (d *dispatcher) next() *item {
	if len(d.ready) == 0 {
		return nil
	}
	it := d.ready[0]
	d.ready[0] = nil
	d.ready = d.ready[1:]
	d.waiting--
	return it
}

// release lets the key of an item go on, whose handler has returned or which
// was dropped.
func (d *dispatcher) release(it *item) {
	key := it.message.Event.Key
	lane := d.lanes[key]
	switch {
	case key == "":
	case len(lane.behind) > 0:
		d.ready = append(d.ready, lane.behind[0])
		lane.behind = slices.Delete(lane.behind, 0, 1)
	default:
		delete(d.lanes, key)
	}
}

// drop removes the items that no handler has and which says, and returns them.
func (d *dispatcher) drop(which func(*item) bool) (dropped []*item) {
	for _, lane := range d.lanes {
		lane.behind = slices.DeleteFunc(lane.behind, func(it *item) bool {
			if which(it) {
				dropped = append(dropped, it)
				return true
			}
			return false
		})
	}
	heads := slices.Clone(d.ready)
	d.ready = d.ready[:0]
	for _, it := range heads {
		if !which(it) {
			d.ready = append(d.ready, it)
			continue
		}
		dropped = append(dropped, it)
		d.release(it)
	}
	d.waiting -= len(dropped)
	return dropped
}
