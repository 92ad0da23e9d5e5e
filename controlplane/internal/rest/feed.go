package rest

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// feedEvery is how often the lists are looked at while somebody watches them.
	feedEvery = 2 * time.Second
	// keepRemoved is how many looks a removed object is remembered: who was away for longer reads the lists anew.
	keepRemoved = 300
)

// item is an object of a list, as a look finds it.
type item struct {
	name string // unique
	id   any    // the object that says which one was removed
	show any    // the object
	// same is equal as long as the object counts as unchanged; nil: show is.
	same any
}

// object is an object of a list, as watchers know it.
type object struct {
	text, id json.RawMessage
	same     []byte
	turn     int64 // in which it changed last
	gone     bool
}

// feed knows what the lists show, and in which turn each object changed last. Nobody looks while nobody
// watches; the first look after that finds all that has changed meanwhile.
type feed struct {
	lists map[string]func() []item

	mu      sync.Mutex
	epoch   string // differs from that of every other process
	turn    int64
	looked  time.Time
	objects map[string]map[string]*object // by list and name
	oldest  int64                         // removals before that turn are forgotten
}

func newFeed(lists map[string]func() []item) *feed {
	return &feed{lists: lists, epoch: rand.Text()[:8], objects: map[string]map[string]*object{}}
}

// position is how far a client has read, as the turn of each of the watchLists: also between two events of one turn.
type position [4]int64

// at is the position after a turn.
func at(turn int64) (p position) {
	for i := range p {
		p[i] = turn
	}
	return p
}

// id names a position to clients.
func (f *feed) id(p position) string {
	id := f.epoch
	for _, turn := range p {
		id += "-" + strconv.FormatInt(turn, 10)
	}
	return id
}

// since reads the id of a position; false: it cannot be gone on from there.
func (f *feed) since(id string) (p position, known bool) {
	parts := strings.Split(id, "-")
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(parts) != 1+len(p) || parts[0] != f.epoch {
		return p, false
	}
	for i, part := range parts[1:] {
		turn, err := strconv.ParseInt(part, 10, 64)
		if err != nil || turn > f.turn || turn < f.oldest {
			return p, false
		}
		p[i] = turn
	}
	return p, true
}

// look looks at the lists, unless somebody did so just now, and returns the turn.
func (f *feed) look(now time.Time) (turn int64, _ error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now.Sub(f.looked) < feedEvery/2 {
		return f.turn, nil
	}
	f.looked = now
	f.turn++
	for list, items := range f.lists {
		if err := f.update(list, items()); err != nil {
			return 0, fmt.Errorf("encode the list %s: %w", list, err)
		}
	}
	return f.turn, nil
}

func (f *feed) update(list string, items []item) error {
	known := f.objects[list]
	if known == nil {
		known = map[string]*object{}
		f.objects[list] = known
	}
	there := make(map[string]bool, len(items))
	for i := range items {
		there[items[i].name] = true
		if err := f.note(known, &items[i]); err != nil {
			return err
		}
	}
	for name, o := range known {
		switch {
		case !there[name] && !o.gone:
			o.gone, o.turn, o.text, o.same = true, f.turn, nil, nil
		case o.gone && f.turn-o.turn > keepRemoved:
			f.oldest = max(f.oldest, o.turn)
			delete(known, name)
		}
	}
	return nil
}

// note notes an object, and whether it has changed.
func (f *feed) note(known map[string]*object, it *item) error {
	compared := it.same
	if compared == nil {
		compared = it.show
	}
	same, err := encode(compared)
	if err != nil {
		return err
	}
	o := known[it.name]
	if o != nil && !o.gone && bytes.Equal(o.same, same) {
		return nil
	}
	text := same
	if it.same != nil {
		if text, err = encode(it.show); err != nil {
			return err
		}
	}
	id, err := encode(it.id)
	if err != nil {
		return err
	}
	known[it.name] = &object{text: text, id: id, same: same, turn: f.turn}
	return nil
}

// changes are what changed in a list.
type changes struct {
	Changed []json.RawMessage `json:"changed"`
	Removed []json.RawMessage `json:"removed"`
}

// after returns what changed in a list after a turn, of the objects whose names are wanted.
func (f *feed) after(list string, turn int64, wanted func(name string) bool) changes {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := changes{[]json.RawMessage{}, []json.RawMessage{}}
	for name, o := range f.objects[list] {
		switch {
		case o.turn <= turn || !wanted(name):
		case o.gone:
			c.Removed = append(c.Removed, o.id)
		default:
			c.Changed = append(c.Changed, o.text)
		}
	}
	return c
}
