package mongolog

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// If the store has no capped collection to follow, each log keeps its last few signals in one
// document, its mailbox, and followers read all mailboxes from time to time. There are only as many
// mailboxes as sidecars, so this is cheap.
const mailboxesName = "boards" // stores have it under this name

// Bounds of a mailbox. Older signals are dropped from it. Followers that have not seen these learn
// from the signals' numbers that they missed some.
const (
	mailboxSignals = 32
	mailboxBytes   = 128 << 10
)

// How often followers read the mailboxes: soon after they heard a signal, and less and less often
// while it is quiet.
const (
	mailboxBusy = 15 * time.Millisecond
	mailboxIdle = 100 * time.Millisecond
)

// mailboxKept is how long a mailbox may stay unchanged. Then it counts as a dead sidecar's, and is
// removed. A live sidecar stores it again.
const mailboxKept = 10 * time.Minute

// mailbox is the document of one log.
type mailbox struct {
	Node string `bson:"_id"`
	// Last is the number of the newest signal; they are numbered from 1.
	Last    int64       `bson:"last"`
	Signals []signalDoc `bson:"signals"` // oldest first
}

// mailboxes reports whether the log sends signals by mailboxes; it must be called between begin and
// its end.
func (l *Log) mailboxes() bool { return l.engine().uncapped }

// add adds a signal to the mailbox and drops the oldest signals that exceed the bounds.
func (b *mailbox) add(d *signalDoc) {
	b.Node, b.Last = d.Node, b.Last+1
	b.Signals = append(b.Signals, *d)
	bytes := 0
	for i := len(b.Signals) - 1; i >= 0; i-- {
		bytes += b.Signals[i].size()
		if i < len(b.Signals)-1 && (bytes > mailboxBytes || len(b.Signals)-i > mailboxSignals) {
			b.Signals = append([]signalDoc(nil), b.Signals[i+1:]...)
			return
		}
	}
}

// postSignal writes the mailbox with one more signal in it.
func (l *Log) postSignal(ctx context.Context, d *signalDoc) error {
	l.unsent.mailboxMu.Lock()
	defer l.unsent.mailboxMu.Unlock()
	b := l.unsent.mailbox
	b.Signals = b.Signals[:len(b.Signals):len(b.Signals)]
	b.add(d)
	earlier := append(byID(b.Node), bson.E{Key: "last", Value: bson.D{{Key: "$lt", Value: b.Last}}})
	_, err := l.majority(mailboxesName).ReplaceOne(ctx, earlier, b, options.Replace().SetUpsert(true))
	if err != nil {
		// The write may have been executed nevertheless, so the signal's number stays used. The
		// next signal's number shows that all signals before it are lost.
		b.Signals = nil
	}
	l.unsent.mailbox = b
	return err
}

// seenMailbox is the state in which a follower last saw a mailbox.
type seenMailbox struct {
	last  int64
	moved time.Time // when it saw the last change
}

// watchMailboxes follows the mailboxes.
func (f *follower) watchMailboxes(ctx context.Context, progress func()) error {
	var seen map[string]seenMailbox
	wait := mailboxBusy
	for {
		mailboxes, err := f.readMailboxes(ctx)
		if err != nil {
			return err
		}
		if seen == nil {
			seen = map[string]seenMailbox{}
			for _, b := range mailboxes {
				seen[b.Node] = seenMailbox{b.Last, f.log.opts.Clock.Now()}
			}
			progress()
			f.open()
		}
		if f.hearMailboxes(mailboxes, seen) {
			wait = mailboxBusy
		} else {
			wait = min(wait+wait/8, mailboxIdle)
		}
		f.removeLeft(ctx, seen, f.log.opts.Clock.Now())
		if !f.log.opts.Clock.Sleep(ctx, wait) {
			return ctx.Err()
		}
	}
}

func (f *follower) readMailboxes(ctx context.Context) ([]mailbox, error) {
	ctx, end, err := f.log.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	cur, err := f.log.majority(mailboxesName).Find(ctx, bson.D{})
	if err != nil {
		return nil, err
	}
	var mailboxes []mailbox
	err = cur.All(ctx, &mailboxes)
	return mailboxes, err
}

// hearMailboxes passes on new signals, and reports whether there are any.
func (f *follower) hearMailboxes(mailboxes []mailbox, seen map[string]seenMailbox) (any bool) {
	for i := range mailboxes {
		b := &mailboxes[i]
		before := seen[b.Node].last
		if b.Last == before {
			continue
		}
		seen[b.Node] = seenMailbox{b.Last, f.log.opts.Clock.Now()}
		any = any || b.Node != f.node
		oldest := b.Last - int64(len(b.Signals)) + 1
		missed := before < oldest-1
		for j := range b.Signals {
			if oldest+int64(j) > before {
				f.hear(&b.Signals[j], missed)
				missed = false
			}
		}
	}
	return any
}

// removeLeft removes one mailbox that has not changed for too long, if there is any. If that fails,
// another sidecar may remove it; until then it does no harm.
func (f *follower) removeLeft(ctx context.Context, seen map[string]seenMailbox, now time.Time) {
	for node, s := range seen {
		if node == f.node || now.Sub(s.moved) < mailboxKept {
			continue
		}
		ctx, end, err := f.log.begin(ctx)
		if err != nil {
			return
		}
		defer end()
		if _, err := f.log.majority(mailboxesName).DeleteOne(ctx, append(byID(node), bson.E{Key: "last", Value: s.last})); err == nil {
			// When the mailbox comes back, followers hear its signals again.
			delete(seen, node)
		}
		return
	}
}
