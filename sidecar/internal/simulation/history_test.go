package simulation

import (
	"fmt"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
)

// history is the requests and answers of applications. Order is one count over everything in it, so
// it says which of two things came first. Times are virtual, from the start of the run.
type history struct {
	start time.Time

	mu    sync.Mutex
	order int

	Publishes  []*publish  `json:"publishes"`
	Deliveries []*delivery `json:"deliveries"`
	// Redelivered are deliveries of redriven dead letters, which have other rules.
	Redelivered []*delivery       `json:"redelivered,omitempty"`
	Redrives    []*redrive        `json:"redrives,omitempty"`
	Cancels     []*cancel         `json:"cancels,omitempty"`
	Entries     []*entry          `json:"entries,omitempty"`
	Changes     []*documentChange `json:"changes,omitempty"`
	Reads       []read            `json:"reads"`
	Lives       []*lifetime       `json:"lives"`
	Silences    []moment          `json:"silences"` // faults that may keep a sidecar's beats from the others
	Declared    []declared        `json:"declared"` // lives that others have declared dead, or tried to
	Troubled    moment            `json:"troubled"` // the first fault, except for sidecars that were stopped in order

	// The state in the end.
	Stored []stored `json:"stored"`
	Lags   []lag    `json:"lags"`
	Unmet  []string `json:"unmet,omitempty"` // what did not come about in time

	// Of the plan.
	topics  map[string]topicPlan
	groups  map[[2]string]groupPlan
	windows map[string]int // of the consumers that are told what is theirs
	skew    time.Duration  // by how much times may be wrong
	ahead   time.Duration  // by how much a clock is ahead, at most
}

// contents are what was published, by the hash of it.
func (h *history) contents() map[string]item {
	all := map[string]item{}
	add := func(topic string, it item) {
		e := wire.Event{Topic: topic, ID: it.id, Key: it.key, Payload: []byte(it.content)}
		sum := codec.ContentHash(&e)
		all[string(sum[:])] = it
	}
	for _, p := range h.Publishes {
		add(p.Topic, item{id: p.ID, key: p.Key, content: p.Content})
	}
	for _, e := range h.Entries {
		add(e.Topic, item{id: e.ID, key: e.Key, content: e.Content})
	}
	return all
}

// moment is a place in the order, and the time then. The zero moment has not come.
type moment struct {
	Order int           `json:"order"`
	At    time.Duration `json:"at"`
}

func (m moment) came() bool { return m.Order > 0 }

// publish is one attempt to publish one event.
type publish struct {
	Publisher, Sidecar string
	Life               int // of the sidecar
	Topic, ID, Key     string
	Content            string
	Began, Ended       moment
	Code               string // of the error; "" with Ended: OK
	Partition          int
	Seq                uint64
	Duplicate, Spooled bool
	DeliverAt          int64 `json:",omitempty"` // what it was scheduled for
}

func (p *publish) ok() bool { return p.Ended.came() && p.Code == "" }

// delivery is one event that came to one member.
type delivery struct {
	Consumer, Sidecar string
	Life              int // of the sidecar
	Topic, Group      string
	Partition         int
	Seq               uint64
	ID, Key           string
	Attempt           int
	Came              moment
	Deadline          time.Duration // as the member knows it
	Settles           []*settle
	Returned          moment // the member gave it back, or it was revoked: neither counts an attempt
	Lost              moment // the member's connection broke
}

// settle is a member's answer to a delivery.
type settle struct {
	Kind         string // ack, nack or extend
	Began, Ended moment
	Stale        bool // the answer: the lease is not in force
	Failed       bool // the answer: an error
}

func (s *settle) ok() bool { return s.Ended.came() && !s.Stale && !s.Failed }

// acked is the moment at which an ack of the delivery was answered OK.
func (d *delivery) acked() moment {
	for _, s := range d.Settles {
		if s.Kind == "ack" && s.ok() {
			return s.Ended
		}
	}
	return moment{}
}

// read is an event as a reader of its partition saw it.
type read struct {
	Reader    string
	Topic     string
	Partition int
	Seq       uint64
	ID        string
	At        moment
}

// lifetime is one process of a sidecar.
type lifetime struct {
	Sidecar      string
	Life         int
	Began, Ended moment
	Killed       bool
	// PendingEnds are its lives, as rosters call them, whose ends the store did not hear of.
	PendingEnds []string
}

// declared says that a sidecar declared a life dead, or tried to.
type declared struct {
	Life string
	At   moment
}

// stored is an event that the log holds in the end.
type stored struct {
	Topic, ID, Key, Content string
	Partition               int
	Seq                     uint64
	TS                      int64
	DeadID, DeadGroup       string // of a dead letter
	DeadAttempts            int
	// Of an event that retention or compaction has removed: when, by the server's clock or a little
	// before it, and when it had no stub any more; 0: it still had one.
	Gone              bool
	GoneAt, Forgotten time.Duration
}

// goneBy reports whether the event was removed before a time.
func (s *stored) goneBy(at time.Duration) bool { return s != nil && s.Gone && s.GoneAt <= at }

// lag is what a group has not settled in the end.
type lag struct {
	Topic, Group string
	Events       int64
	Ahead        int64 // how far it is beyond the ends of partitions
	Redriven     bool  `json:",omitempty"` // a dead letter is redriven and not settled
}

func newHistory(p *plan) *history {
	h := &history{start: time.Now(), topics: map[string]topicPlan{}, groups: map[[2]string]groupPlan{}, windows: map[string]int{}}
	for _, t := range p.Topics {
		h.topics[t.Name] = t
	}
	for _, g := range p.Groups {
		h.groups[[2]string{g.Topic, g.Name}] = g
	}
	for i, c := range p.Consumers {
		if c.Told {
			h.windows[consumerName(i)] = c.Window
		}
	}
	h.skew = 10 * time.Second // answers may take so long
	for _, first := range p.Faults {
		first.each(0, func(f fault, _ ms) {
			switch f.Kind {
			case pauseSidecar, suspendSidecar:
				h.skew += time.Minute
			case shiftClock:
				h.skew += max(f.By, -f.By).d()
				h.ahead = max(h.ahead, f.By.d())
			}
		})
	}
	return h
}

func consumerName(i int) string  { return fmt.Sprintf("c%d", i) }
func publisherName(i int) string { return fmt.Sprintf("p%d", i) }
func sidecarName(i int) string   { return fmt.Sprintf("s%d", i) }

// note runs change with the moment that it is; histories are changed nowhere else.
func (h *history) note(change func(now moment)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.order++
	change(moment{h.order, time.Since(h.start)})
}
