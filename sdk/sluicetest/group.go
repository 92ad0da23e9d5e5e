package sluicetest

import (
	"maps"
	"slices"

	"github.com/sluice-bus/sluice/sdk/wire"
)

const (
	defaultInflight   = 100
	defaultDeadlineMS = 30_000
)

// group is how far a consumer group is.
type group struct {
	next     int            // index of the first event that nobody got yet
	again    []int          // indexes of those that are to be delivered again
	attempts map[string]int // by id, of what was delivered
	acked    int
	extended int
}

// take returns the index of the next event to deliver.
func (g *group) take(t *topic) (int, bool) {
	if len(g.again) > 0 {
		i := g.again[0]
		g.again = g.again[1:]
		return i, true
	}
	if g.next < len(t.events) {
		g.next++
		return g.next - 1, true
	}
	return 0, false
}

// member is one subscription. A member without a group has one of its own.
type member struct {
	topicName, groupName string

	topic       *topic
	group       *group
	socket      *socket
	autoAck     bool
	paused      bool
	maxInflight int
	maxBatch    int
	deadlineMS  int64
	inflight    map[string]int // id to index
	frame       []byte         // reused
}

func (t *topic) join(socket *socket, r *wire.Request) *member {
	g := t.groups[r.Group]
	if g == nil {
		g = &group{next: t.start(&r.Subscribe), attempts: map[string]int{}}
		if r.Group != "" {
			t.groups[r.Group] = g
		}
	}
	m := &member{
		topicName: r.Topic, groupName: r.Group, topic: t, group: g, socket: socket,
		autoAck: r.Group == "" || r.Subscribe.AutoAck, maxInflight: defaultInflight, maxBatch: 1, deadlineMS: defaultDeadlineMS,
		inflight: map[string]int{},
	}
	if n := r.Subscribe.MaxInflight; n != nil {
		m.maxInflight = *n
	}
	if n := r.Subscribe.MaxBatch; n != nil {
		m.maxBatch = *n
	}
	t.subs = append(t.subs, m)
	return m
}

func (t *topic) start(o *wire.SubscribeOptions) int {
	first := func(is func(*wire.Event) bool) int {
		if i := slices.IndexFunc(t.events, is); i >= 0 {
			return i
		}
		return len(t.events)
	}
	switch o.From {
	case wire.FromEarliest:
		return 0
	case wire.FromTS:
		return first(func(e *wire.Event) bool { return e.TS >= *o.TS })
	case wire.FromAfterID:
		return first(func(e *wire.Event) bool { return e.ID == o.AfterID }) + 1
	}
	return len(t.events)
}

func (m *member) leave() {
	m.topic.subs = slices.DeleteFunc(m.topic.subs, func(x *member) bool { return x == m })
	for id := range m.inflight {
		m.group.attempts[id]-- // given back without counting
	}
	m.giveBack(slices.Collect(maps.Keys(m.inflight)))
	m.topic.deliver()
}

func (m *member) ack(ids []string) {
	for _, id := range ids {
		if _, ok := m.inflight[id]; ok {
			delete(m.inflight, id)
			delete(m.group.attempts, id)
			m.group.acked++
		}
	}
}

func (m *member) giveBack(ids []string) {
	for _, id := range ids {
		if i, ok := m.inflight[id]; ok {
			delete(m.inflight, id)
			m.group.again = append(m.group.again, i)
		}
	}
	slices.Sort(m.group.again)
}

// deliver sends every member what it has room for.
func (t *topic) deliver() {
	for _, m := range t.subs {
		for m.deliver() {
		}
	}
}

// deliver sends one frame, and reports whether it did.
func (m *member) deliver() bool {
	var batch []int
	for !m.paused && len(batch) < m.maxBatch && len(m.inflight) < m.maxInflight {
		i, ok := m.group.take(m.topic)
		if !ok {
			break
		}
		batch = append(batch, i)
		id := m.topic.events[i].ID
		m.group.attempts[id]++
		if !m.autoAck {
			m.inflight[id] = i
		}
	}
	switch {
	case len(batch) == 0:
		return false
	case m.maxBatch == 1:
		e := m.topic.events[batch[0]]
		m.frame = wire.AppendEvent(m.frame[:0], m.topicName, m.groupName, e, m.group.attempts[e.ID], m.deadlineMS)
	default:
		m.frame = wire.AppendEventsStart(m.frame[:0], m.topicName, m.groupName)
		for _, i := range batch {
			e := m.topic.events[i]
			m.frame = wire.AppendEventsItem(m.frame, e, m.group.attempts[e.ID], m.deadlineMS)
		}
		m.frame = wire.AppendEventsEnd(m.frame)
	}
	m.socket.send(opText, m.frame)
	return true
}
