package mongolog

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Where there is no capped collection to follow, signals go another way: each log has one document, its board, with its last
// few signals, and followers read all boards now and then. There are as many as
// sidecars, so that this is cheap.
const boardsName = "boards"

// Bounds of a board: older signals leave it, and followers that have not seen
// them know by their numbers that they missed some.
const (
	boardSignals = 32
	boardBytes   = 128 << 10
)

// How often boards are looked at: soon after something was heard, and in the
// end when it has been quiet.
const (
	boardBusy = 15 * time.Millisecond
	boardIdle = 100 * time.Millisecond
)

// boardKept is for how long a board may stay as it is before it is taken for
// one that a dead sidecar has left. A living one puts it up again.
const boardKept = 10 * time.Minute

// board is the document of one log.
type board struct {
	Node string `bson:"_id"`
	// Last is the number of the newest signal; they are numbered from 1.
	Last    int64       `bson:"last"`
	Signals []signalDoc `bson:"signals"` // oldest first
}

// boards reports whether signals go by boards; it must be called between begin
// and its end.
func (l *Log) boards() bool { return l.engine().uncapped }

// add puts a signal on the board and takes off what is over the bounds.
func (b *board) add(d *signalDoc) {
	b.Node, b.Last = d.Node, b.Last+1
	b.Signals = append(b.Signals, *d)
	bytes := 0
	for i := len(b.Signals) - 1; i >= 0; i-- {
		bytes += b.Signals[i].size()
		if i < len(b.Signals)-1 && (bytes > boardBytes || len(b.Signals)-i > boardSignals) {
			b.Signals = append([]signalDoc(nil), b.Signals[i+1:]...)
			return
		}
	}
}

// postSignal writes the board with one more signal on it.
func (l *Log) postSignal(ctx context.Context, d *signalDoc) error {
	l.outbox.boardMu.Lock()
	defer l.outbox.boardMu.Unlock()
	b := l.outbox.board
	b.Signals = b.Signals[:len(b.Signals):len(b.Signals)]
	b.add(d)
	earlier := append(byID(b.Node), bson.E{Key: "last", Value: bson.D{{Key: "$lt", Value: b.Last}}})
	_, err := l.majority(boardsName).ReplaceOne(ctx, earlier, b, options.Replace().SetUpsert(true))
	if err != nil {
		// It may be up all the same, so its number is used up. That all
		// before the next is lost shows in the next one's number.
		b.Signals = nil
	}
	l.outbox.board = b
	return err
}

// seenBoard is what a follower has seen of a board.
type seenBoard struct {
	last  int64
	moved time.Time // when it saw that
}

// watchBoards follows the boards.
func (f *follower) watchBoards(ctx context.Context, progress func()) error {
	var seen map[string]seenBoard
	wait := boardBusy
	for {
		boards, err := f.readBoards(ctx)
		if err != nil {
			return err
		}
		if seen == nil {
			seen = map[string]seenBoard{}
			for _, b := range boards {
				seen[b.Node] = seenBoard{b.Last, f.log.opts.Clock.Now()}
			}
			progress()
			f.open()
		}
		if f.hearBoards(boards, seen) {
			wait = boardBusy
		} else {
			wait = min(wait+wait/8, boardIdle)
		}
		f.removeLeft(ctx, seen, f.log.opts.Clock.Now())
		if !f.log.opts.Clock.Sleep(ctx, wait) {
			return ctx.Err()
		}
	}
}

func (f *follower) readBoards(ctx context.Context) ([]board, error) {
	ctx, end, err := f.log.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	cur, err := f.log.majority(boardsName).Find(ctx, bson.D{})
	if err != nil {
		return nil, err
	}
	var boards []board
	err = cur.All(ctx, &boards)
	return boards, err
}

// hearBoards passes on what is new, and reports whether anything is.
func (f *follower) hearBoards(boards []board, seen map[string]seenBoard) (any bool) {
	for i := range boards {
		b := &boards[i]
		before := seen[b.Node].last
		if b.Last == before {
			continue
		}
		seen[b.Node] = seenBoard{b.Last, f.log.opts.Clock.Now()}
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

// removeLeft removes one board that has not moved for too long, if there is
// any. If that fails, somebody else does it, or nobody: it does no harm.
func (f *follower) removeLeft(ctx context.Context, seen map[string]seenBoard, now time.Time) {
	for node, s := range seen {
		if node == f.node || now.Sub(s.moved) < boardKept {
			continue
		}
		ctx, end, err := f.log.begin(ctx)
		if err != nil {
			return
		}
		defer end()
		if _, err := f.log.majority(boardsName).DeleteOne(ctx, append(byID(node), bson.E{Key: "last", Value: s.last})); err == nil {
			// When it comes back, the signals on it are heard again.
			delete(seen, node)
		}
		return
	}
}
