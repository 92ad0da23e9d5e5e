package scenarios

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/bench/internal/load"
	"github.com/sluice-bus/sluice/bench/report"
	"github.com/sluice-bus/sluice/sdk/wire"
)

var raw = Scenario{
	Name: "raw", Asks: "What would the store do by itself: a file that is appended and synced, or the MongoDB driver's inserts?",
	Cases: []Case{
		{"one by one", Params{}},
		{"64 writers", Params{Connections: 64}},
		{"batches of 500", Params{Connections: 4, Batch: 500}},
	},
	Uses: []string{"connections", "batch", "size", "rate"},
	Run: func(ctx context.Context, lab *Lab, p Params) (*report.Round, error) {
		floor := *lab
		floor.Start = lab.StartRaw
		return runPublish(ctx, &floor, p)
	},
	Needs: Needs{Own: true},
}

// StartRaw is the store without a sidecar.
func (l *Lab) StartRaw(ctx context.Context) (System, error) {
	if l.Store != "" {
		database, err := connect(ctx, l.Store)
		if err != nil {
			return nil, err
		}
		return &rawStore{write: func(payloads [][]byte) error { return database.insert(ctx, "raw", payloads) }, close: database.close}, nil
	}
	f, err := os.CreateTemp(l.Dir, "raw-*")
	if err != nil {
		return nil, err
	}
	file := &appended{f: f}
	return &rawStore{write: file.append, close: func() { _ = errors.Join(f.Close(), os.Remove(f.Name())) }}, nil // it holds nothing
}

// rawStore is a System whose publishes are writes to a store.
type rawStore struct {
	write func(payloads [][]byte) error
	close func()
}

func (s *rawStore) Publishing(p Params) load.Publishing {
	return load.Publishing{
		Size: p.Size, Connections: p.Connections, Depth: 1, Batch: p.Batch, Rate: p.Rate, Transport: "raw",
		Open: func(context.Context, load.Publishing) (load.Carrier, error) { return &rawCarrier{store: s}, nil },
	}
}

func (s *rawStore) Consuming(Params) load.Consuming { return load.Consuming{} }
func (s *rawStore) Processes() []int                { return nil }
func (s *rawStore) Close() error                    { s.close(); return nil }

func (s *rawStore) Appends(context.Context) (int64, time.Duration, error) { return 0, 0, nil }

// rawCarrier writes one request after another.
type rawCarrier struct {
	store    *rawStore
	payloads [][]byte
}

func (c *rawCarrier) Send(events []wire.Event, s *load.Slot) error {
	c.payloads = c.payloads[:0]
	for i := range events {
		c.payloads = append(c.payloads, events[i].Payload)
	}
	s.Answered(c.store.write(c.payloads))
	return nil
}

func (*rawCarrier) Flush() error { return nil }
func (*rawCarrier) Close()       {}

// appended is a file with one sync for all that waits, which is what any log of one file can do at most.
type appended struct {
	f *os.File

	mu      sync.Mutex
	next    *commit // what waits for the sync under way
	syncing bool
}

// commit is what one sync makes durable.
type commit struct {
	block []byte
	done  chan struct{} // closed when it is
	err   error
}

func (a *appended) append(payloads [][]byte) error {
	a.mu.Lock()
	if a.next == nil {
		a.next = &commit{done: make(chan struct{})}
	}
	mine := a.next
	for _, payload := range payloads {
		mine.block = append(mine.block, payload...)
	}
	if a.syncing {
		a.mu.Unlock()
		<-mine.done
		return mine.err
	}
	a.syncing = true
	for a.next != nil {
		c := a.next
		a.next = nil
		a.mu.Unlock()
		_, err := a.f.Write(c.block)
		c.err = errors.Join(err, a.f.Sync())
		close(c.done)
		a.mu.Lock()
	}
	a.syncing = false
	a.mu.Unlock()
	return mine.err
}
