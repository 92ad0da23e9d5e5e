package sdk_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/sdk/exactlyonce"
)

var (
	errKilled = errors.New("this process was killed")
	errLost   = errors.New("the connection broke")
)

// proc is the store as one process reaches it. The process may be killed or paused between any two
// steps, and its requests or the answers may be lost.
type proc struct {
	db *database

	mu      sync.Mutex
	rand    *rand.Rand
	loses   int // so many of 100 requests, and of 100 answers
	dead    bool
	paused  chan struct{} // nil: it runs
	calls   int
	killAt  int  // the call at which it is killed; 0: none
	after   bool // behind that call, not before it
	onDeath context.CancelFunc
}

// call does one thing to the store.
func (p *proc) call(ctx context.Context, do func() error) error {
	p.mu.Lock()
	p.calls++
	mine := p.calls
	request, reply := p.rand.IntN(100) < p.loses, p.rand.IntN(100) < p.loses
	delay := time.Duration(p.rand.IntN(20)) * time.Millisecond
	if p.loses > 0 && p.rand.IntN(10) == 0 {
		delay = time.Duration(p.rand.Int64N(int64(trialLease)))
	}
	patient := p.rand.IntN(2) == 0
	p.mu.Unlock()
	if err := p.running(); err != nil {
		return err
	}
	if mine == p.killAt && !p.after {
		p.kill()
		return errKilled
	}
	if request {
		return errLost
	}
	if patient {
		time.Sleep(delay)
	} else {
		sleep(ctx, delay)
	}
	if p.isDead() {
		return errKilled
	}
	err := do() // on its way, whatever becomes of the process
	if mine == p.killAt {
		p.kill()
	}
	if dead := p.running(); dead != nil {
		return dead
	}
	if reply {
		return errLost
	}
	return err
}

// running waits while the process is paused.
func (p *proc) running() error {
	for {
		p.mu.Lock()
		paused, dead := p.paused, p.dead
		p.mu.Unlock()
		switch {
		case dead:
			return errKilled
		case paused == nil:
			return nil
		}
		<-paused
	}
}

func (p *proc) isDead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

func (p *proc) isPaused() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.paused != nil
}

func (p *proc) kill() {
	p.mu.Lock()
	p.dead = true
	p.mu.Unlock()
	p.resume()
	p.onDeath()
}

func (p *proc) pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.paused == nil {
		p.paused = make(chan struct{})
	}
}

func (p *proc) resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.paused != nil {
		close(p.paused)
		p.paused = nil
	}
}

func (p *proc) Insert(ctx context.Context, r exactlyonce.Record) error {
	return p.call(ctx, func() error {
		if tx, ok := ctx.Value(txKey{}).(*transaction); ok {
			tx.inserts = append(tx.inserts, r)
			return nil
		}
		return p.db.Memory.Insert(context.Background(), r)
	})
}

func (p *proc) Get(ctx context.Context, s exactlyonce.Slot) (r exactlyonce.Record, err error) {
	err = p.call(ctx, func() error { r, err = p.db.Memory.Get(context.Background(), s); return err })
	return r, err
}

func (p *proc) Extend(ctx context.Context, s exactlyonce.Slot, b exactlyonce.Beat) error {
	return p.call(ctx, func() error { return p.db.Memory.Extend(context.Background(), s, b) })
}

func (p *proc) Keep(ctx context.Context, s exactlyonce.Slot, until time.Time) (kept bool, err error) {
	err = p.call(ctx, func() error { kept, err = p.db.Memory.Keep(context.Background(), s, until); return err })
	return kept, err
}

func (p *proc) CanTransact(context.Context) error { return nil }

// Transact runs f again now and then, as a server asks for after a conflict.
func (p *proc) Transact(ctx context.Context, f func(context.Context) error) error {
	for {
		tx := &transaction{}
		if err := f(context.WithValue(ctx, txKey{}, tx)); err != nil {
			return err
		}
		p.mu.Lock()
		conflict := p.rand.IntN(4) == 0
		p.mu.Unlock()
		if !conflict {
			return p.call(ctx, func() error { return p.db.commit(tx) })
		}
	}
}

// database is a memory store that has counters beside the records, and transactions over both.
type database struct {
	*exactlyonce.Memory

	mu       sync.Mutex
	counters map[string]int
}

type txKey struct{}

type transaction struct {
	inserts    []exactlyonce.Record
	increments []string
}

// increment is an application's own write in a transaction.
func increment(ctx context.Context, counter string) {
	tx := ctx.Value(txKey{}).(*transaction)
	tx.increments = append(tx.increments, counter)
}

func (d *database) commit(tx *transaction) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range tx.inserts { // there is one
		if err := d.Memory.Insert(context.Background(), r); err != nil {
			return err
		}
	}
	for _, c := range tx.increments {
		d.counters[c]++
	}
	return nil
}

func (d *database) counter(name string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.counters[name]
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
