package load

import (
	"context"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// A Source is one connection that consumes.
type Source interface {
	// Subscribe begins to consume. Each batch that comes while the sink wants more is acked, where something is to be acked, and
	// then delivered.
	Subscribe(ctx context.Context, to Sink) error
	// Flush waits until every ack is answered.
	Flush(ctx context.Context) error
	// Done is closed when the connection has ended; Err says why.
	Done() <-chan struct{}
	Err() error
	Close()
}

// A Sink takes what a Source consumes.
type Sink interface {
	// Wanted is false when all events came: further ones belong to others.
	Wanted() bool
	// Deliver counts deliveries, and keeps nothing of them.
	Deliver([]wire.Delivery)
	// Refused counts an ack that was refused. It may be called at any time.
	Refused(error)
}

// open opens a connection.
func (c *Consuming) open(ctx context.Context) (Source, error) {
	if c.Open != nil {
		return c.Open(ctx, *c)
	}
	return Dial(ctx, *c)
}

// Dial opens a connection to a sidecar.
func Dial(ctx context.Context, plan Consuming) (Source, error) {
	conn, err := sluice.DialConn(ctx, plan.URL, &sluice.ConnOptions{Token: plan.Token})
	if err != nil {
		return nil, err
	}
	return &socket{conn: conn, plan: plan, ready: make(chan struct{})}, nil
}

// socket consumes over a WebSocket.
type socket struct {
	conn *sluice.Conn
	plan Consuming
	sink Sink

	ready chan struct{} // closed when sub is set
	sub   *sluice.ConnSubscription
	ids   []string // reused
}

func (s *socket) Subscribe(ctx context.Context, to Sink) error {
	s.sink = to
	opts := &wire.SubscribeOptions{From: s.plan.From, MaxInflight: &s.plan.Window, MaxBatch: &s.plan.MaxBatch}
	sub, err := s.conn.Subscribe(ctx, s.plan.Topic, s.plan.Group, opts, func(deliveries []wire.Delivery) {
		if !to.Wanted() {
			return
		}
		if s.plan.Group != "" {
			s.ack(deliveries)
		}
		to.Deliver(deliveries)
	})
	s.sub = sub
	close(s.ready)
	return err
}

func (s *socket) ack(deliveries []wire.Delivery) {
	<-s.ready
	if s.sub == nil {
		return // subscribing failed
	}
	s.ids = s.ids[:0]
	for i := range deliveries {
		s.ids = append(s.ids, deliveries[i].Event.ID)
	}
	if err := s.sub.AckAsync(s.settled, s.ids...); err != nil {
		s.sink.Refused(err)
	}
}

func (s *socket) settled(err error) {
	if err != nil {
		s.sink.Refused(err)
	}
}

func (s *socket) Flush(ctx context.Context) error { return s.conn.Flush(ctx) }
func (s *socket) Done() <-chan struct{}           { return s.conn.Done() }
func (s *socket) Err() error                      { return s.conn.Err() }
func (s *socket) Close()                          { _ = s.conn.Close() } // Wait has said what was wrong
