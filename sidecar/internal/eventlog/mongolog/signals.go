package mongolog

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// signalDoc is a signal in the store.
type signalDoc struct {
	ID       bson.ObjectID `bson:"_id,omitempty"`
	Node     string        `bson:"node"` // the log that sends it
	Appended []hintDoc     `bson:"appended,omitempty"`
	Moved    []groupDoc    `bson:"moved,omitempty"`
	Nodes    bool          `bson:"nodes,omitempty"`
	// All says that there was more than one signal holds: look everywhere.
	All bool `bson:"all,omitempty"`
}

// hintDoc is an eventlog.Hint.
type hintDoc struct {
	Topic     string `bson:"topic"`
	Partition int    `bson:"partition"`
	Head      int64  `bson:"head"`
}

func (d *signalDoc) signal() eventlog.Signal {
	s := eventlog.Signal{Nodes: d.Nodes}
	for _, h := range d.Appended {
		s.Appended = append(s.Appended, eventlog.Hint{Topic: h.Topic, Partition: h.Partition, Head: uint64(h.Head)})
	}
	for _, g := range d.Moved {
		s.Moved = append(s.Moved, eventlog.GroupName(g))
	}
	return s
}

// size is roughly what a signal takes up in the store.
func (d *signalDoc) size() int {
	n := 64
	for _, h := range d.Appended {
		n += 48 + len(h.Topic)
	}
	for _, g := range d.Moved {
		n += 32 + len(g.Topic) + len(g.Group)
	}
	return n
}

// join is the start of something that Close has to wait for, and whose end is
// l.calls.Done; it reports false when the log is closed.
func (l *Log) join() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.calls.Add(1)
	}
	return !l.closed
}

// Follow implements eventlog.Signals.
func (l *Log) Follow(ctx context.Context, heard func(s eventlog.Signal, missed bool)) error {
	if !l.join() {
		return errClosed
	}
	defer l.calls.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.ctx, cancel)()
	f := &following{log: l, node: l.outbox.node(), heard: heard}
	for {
		err := f.follow(ctx)
		switch {
		case l.ctx.Err() != nil:
			return errClosed
		case ctx.Err() != nil:
			return nil
		}
		l.opts.Logger.Debug("following the signals of other sidecars failed", "error", err)
		if f.retry.sleep(ctx, f.log.opts.Clock, signalRetry) != nil {
			continue // which ends it
		}
	}
}

// following is one Follow.
type following struct {
	log   *Log
	node  string // this log's own
	heard func(s eventlog.Signal, missed bool)
	retry backoff
}

// follow hears signals until something fails.
func (f *following) follow(ctx context.Context) error {
	boards, err := f.prepare(ctx)
	switch {
	case err != nil:
		return err
	case boards:
		return f.watchBoards(ctx)
	}
	return f.tail(ctx)
}

// prepare waits for the server to be there, and tells how it carries signals.
func (f *following) prepare(ctx context.Context) (boards bool, err error) {
	_, end, err := f.log.begin(ctx)
	if err != nil {
		return false, err
	}
	defer end()
	return f.log.boards(), nil
}

// hear passes a signal on, unless it is this log's own.
func (f *following) hear(d *signalDoc, missed bool) {
	if d.Node == f.node {
		return
	}
	f.heard(d.signal(), missed || d.All)
}

// open says that following has begun, and that what was sent before is lost.
func (f *following) open() {
	f.retry = backoff{}
	f.heard(eventlog.Signal{}, true)
}
