package mongolog

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// Bounds of one signal. What goes beyond them becomes a signal that says only
// that there is much to look at.
const (
	maxSignalParts = 1024     // partitions and groups
	maxSignalBytes = 64 << 10 // of their names
)

// signalSpacing is how long after a signal the next one of the same sidecar goes, with all that is to be said by then.
const signalSpacing = 20 * time.Millisecond

// signalRetry is how far apart tries come to be while the store is away.
const signalRetry = 2 * time.Second

// Send implements eventlog.Signals.
func (l *Log) Send(s eventlog.Signal) {
	if len(s.Appended) == 0 && len(s.Moved) == 0 && !s.Nodes {
		return
	}
	if l.outbox.put(s) {
		if !l.join() {
			return // closed: nobody sends any more
		}
		go func() {
			defer l.calls.Done()
			l.sendPending()
		}()
	}
}

// sendPending sends until nothing is left to send, or the log is closed. Only
// one runs at a time.
func (l *Log) sendPending() {
	o := &l.outbox
	var retry backoff
	for {
		if !l.opts.Clock.Sleep(l.ctx, signalSpacing-l.opts.Clock.Since(o.sent)) {
			return
		}
		d, any := o.take()
		if !any {
			return
		}
		err := l.sendSignal(d)
		o.sent = l.opts.Clock.Now()
		if err == nil {
			retry = backoff{}
			continue
		}
		o.putBack(d)
		if retry.sleep(l.ctx, l.opts.Clock, signalRetry) != nil {
			return
		}
	}
}

// sendSignal writes one signal.
func (l *Log) sendSignal(d *signalDoc) error {
	ctx, end, err := l.begin(l.ctx)
	if err != nil {
		return err
	}
	defer end()
	return l.writeSignal(ctx, d)
}

func (l *Log) writeSignal(ctx context.Context, d *signalDoc) error {
	if l.boards() {
		return l.postSignal(ctx, d)
	}
	_, err := l.signals().InsertOne(ctx, d)
	return err
}

// lastSignalTimeout is how long the end of a log waits for its last signal.
const lastSignalTimeout = time.Second

// sendLast sends what waits when the log is closed: often that this sidecar has
// left, which the others would else find out only when they look around, long
// after where leases are long. Nobody else sends any more.
func (l *Log) sendLast() {
	d, any := l.outbox.take()
	if !any {
		return
	}
	ctx, cancel := l.opts.Clock.WithTimeout(context.Background(), lastSignalTimeout)
	defer cancel()
	_ = l.writeSignal(ctx, d) // whoever does not hear it looks around
}

// outbox is what is to be sent.
type outbox struct {
	mu      sync.Mutex
	id      string // of this log
	sending bool
	waiting signalSet

	// Of the one that sends:
	sent  time.Time
	board board
}

// node is the log's id among those that send signals.
func (o *outbox) node() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.id == "" {
		o.id = uuid.NewString()
	}
	return o.id
}

// put adds to what is waiting, and reports whether somebody has to start
// sending.
func (o *outbox) put(s eventlog.Signal) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.waiting.add(s)
	start := !o.sending
	o.sending = true
	return start
}

// take takes all that is waiting; if nothing is, the sending is over.
func (o *outbox) take() (*signalDoc, bool) {
	node := o.node()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.waiting.empty() {
		o.sending = false
		return nil, false
	}
	d := o.waiting.doc()
	d.ID, d.Node = bson.NewObjectID(), node
	o.waiting = signalSet{}
	return d, true
}

// putBack keeps what could not be sent.
func (o *outbox) putBack(d *signalDoc) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if d.All {
		o.waiting.overflow()
	}
	o.waiting.add(d.signal())
}

// signalSet is signals merged.
type signalSet struct {
	heads map[eventlog.Hint]uint64 // by hint without head
	moved map[eventlog.GroupName]struct{}
	bytes int
	nodes bool
	all   bool // too much to name
}

func (s *signalSet) empty() bool {
	return len(s.heads) == 0 && len(s.moved) == 0 && !s.nodes && !s.all
}

func (s *signalSet) add(in eventlog.Signal) {
	s.nodes = s.nodes || in.Nodes
	for _, h := range in.Appended {
		s.addHint(h)
	}
	for _, g := range in.Moved {
		if _, known := s.moved[g]; known || !s.room(len(g.Topic)+len(g.Group)) {
			continue
		}
		if s.moved == nil {
			s.moved = map[eventlog.GroupName]struct{}{}
		}
		s.moved[g] = struct{}{}
	}
}

// addHint keeps the highest head of a partition; a head that is not known
// outdoes all, since nobody can tell that it is not higher.
func (s *signalSet) addHint(h eventlog.Hint) {
	head := h.Head
	h.Head = 0
	known, ok := s.heads[h]
	switch {
	case ok && (known == 0 || head == 0):
		s.heads[h] = 0
	case ok:
		s.heads[h] = max(known, head)
	case s.room(len(h.Topic)):
		if s.heads == nil {
			s.heads = map[eventlog.Hint]uint64{}
		}
		s.heads[h] = head
	}
}

// room makes sure that there is room for one more with names of that length.
func (s *signalSet) room(bytes int) bool {
	if s.all {
		return false
	}
	if len(s.heads)+len(s.moved) >= maxSignalParts || s.bytes+bytes > maxSignalBytes {
		s.overflow()
		return false
	}
	s.bytes += bytes
	return true
}

func (s *signalSet) overflow() { *s = signalSet{nodes: s.nodes, all: true} }

func (s *signalSet) doc() *signalDoc {
	d := &signalDoc{Nodes: s.nodes, All: s.all}
	for h, head := range s.heads {
		d.Appended = append(d.Appended, hintDoc{Topic: h.Topic, Partition: h.Partition, Head: int64(head)})
	}
	for g := range s.moved {
		d.Moved = append(d.Moved, groupDoc(g))
	}
	return d
}
