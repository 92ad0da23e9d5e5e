package main

import (
	"context"
	"errors"
	"log"
	"sync"
	"time"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// count is how many publishes were accepted, and how many refused for the limit.
type count struct{ allowed, denied int }

func (c count) minus(d count) count { return count{c.allowed - d.allowed, c.denied - d.denied} }

// publisher publishes to one sidecar at a steady rate. It uses a [sluice.Conn] where an application
// would use a [sluice.Client]: a client waits when it is told to, and this one wants to see what is
// refused.
type publisher struct {
	node string
	rate int
	conn *sluice.Conn

	cancel context.CancelFunc
	work   sync.WaitGroup

	mu    sync.Mutex
	count count
}

func startPublisher(ctx context.Context, node, url string, rate int) (*publisher, error) {
	conn, err := sluice.DialConn(ctx, url, nil)
	if err != nil {
		return nil, err
	}
	p := &publisher{node: node, rate: rate, conn: conn}
	ctx, p.cancel = context.WithCancel(ctx)
	p.work.Go(func() { p.publish(ctx) })
	return p, nil
}

func (p *publisher) publish(ctx context.Context) {
	tick := time.NewTicker(time.Second / time.Duration(p.rate))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		event := sluice.Event{Topic: topic, Payload: []byte(`{"order":17}`)}
		if err := p.conn.PublishAsync(ctx, &event, p.answered); err != nil && ctx.Err() == nil {
			log.Fatalf("publishing at %s: %v", p.node, err)
		}
	}
}

func (p *publisher) answered(_ sluice.Receipt, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err == nil:
		p.count.allowed++
	case errors.Is(err, &sluice.Error{Code: wire.RateLimited}):
		p.count.denied++
	case !errors.Is(err, sluice.ErrClosed):
		log.Fatalf("publishing at %s: %v", p.node, err)
	}
}

func (p *publisher) stop() {
	p.cancel()
	p.work.Wait()
	p.conn.Close()
}

// totals are the counts of all publishers at one moment.
type totals struct {
	at   time.Time
	each []count
	sum  count
}

func total(publishers []*publisher) totals {
	t := totals{at: time.Now()}
	for _, p := range publishers {
		p.mu.Lock()
		c := p.count
		p.mu.Unlock()
		t.each = append(t.each, c)
		t.sum = count{t.sum.allowed + c.allowed, t.sum.denied + c.denied}
	}
	return t
}
