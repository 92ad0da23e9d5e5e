package sluice

import (
	"slices"
	"time"
)

// dispatcher decides which event is handled next: in the order in which they came, and those of one
// key one after the other. The subscription's lock guards it.
type dispatcher struct {
	plain bool // one handler, no retries: no event has to wait for another of its key
	ready []*item
	// behind has each key of which one event is ready or with a handler, and the events behind that
	// one.
	behind  map[string][]*item
	waiting int // items that no handler has yet
	// postponed are the items that are ready again soon: their handler has failed, or the sidecar is
	// asked first whether they are still here. Their keys wait for them. An item has a timer, or nil.
	postponed map[*item]*time.Timer
}

// place adds an item.
func (d *dispatcher) place(it *item) {
	d.waiting++
	if key := it.message.Event.Key; key != "" && !d.plain {
		if behind, busy := d.behind[key]; busy {
			d.behind[key] = append(behind, it)
			return
		}
		if d.behind == nil {
			d.behind = map[string][]*item{}
		}
		d.behind[key] = nil
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

// postpone keeps an item until it is resumed; timer may be nil.
func (d *dispatcher) postpone(it *item, timer *time.Timer) {
	if d.postponed == nil {
		d.postponed = map[*item]*time.Timer{}
	}
	d.postponed[it] = timer
}

// resume makes a postponed item ready again; it returns false if the item was dropped meanwhile.
func (d *dispatcher) resume(it *item) bool {
	if !d.isPostponed(it) {
		return false
	}
	delete(d.postponed, it)
	d.ready = slices.Insert(d.ready, 0, it)
	d.waiting++
	return true
}

func (d *dispatcher) isPostponed(it *item) bool {
	_, is := d.postponed[it]
	return is
}

// cancelPostponed removes a postponed item, and lets its key go on.
func (d *dispatcher) cancelPostponed(it *item) bool {
	timer, is := d.postponed[it]
	if !is {
		return false
	}
	if timer != nil {
		timer.Stop()
	}
	delete(d.postponed, it)
	d.release(it)
	return true
}

// release lets the key of an item go on, once the item's handler has returned or the item was
// dropped.
func (d *dispatcher) release(it *item) {
	key := it.message.Event.Key
	switch behind := d.behind[key]; {
	case key == "" || d.plain:
	case len(behind) > 0:
		d.ready = append(d.ready, behind[0])
		d.behind[key] = slices.Delete(behind, 0, 1)
	default:
		delete(d.behind, key)
	}
}

// drop removes and returns the items that the function which selects, except those that a handler
// has.
func (d *dispatcher) drop(which func(*item) bool) (dropped []*item) {
	for key, behind := range d.behind {
		d.behind[key] = slices.DeleteFunc(behind, func(it *item) bool {
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
	for it := range d.postponed {
		if which(it) {
			d.cancelPostponed(it)
			dropped = append(dropped, it)
		}
	}
	return dropped
}
