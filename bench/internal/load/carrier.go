package load

import (
	"context"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// The transports.
const (
	TransportWS   = "ws"
	TransportHTTP = "http"
)

// A Carrier is one connection that carries publishes. One goroutine uses it.
type Carrier interface {
	// Send publishes events, which are the caller's again when it returns. The slot gets the answer, then or later, unless Send
	// fails.
	Send(events []wire.Event, s *Slot) error
	// Flush waits until every send is answered.
	Flush() error
	Close()
}

// open opens a connection. Where the plan has a batch of 1, events go in requests of their own, not
// in batches of one.
func (p *Publishing) open(ctx context.Context) (Carrier, error) {
	if p.Open != nil {
		return p.Open(ctx, *p)
	}
	if p.Transport == TransportHTTP {
		h := &admin.HTTP{AppURL: p.URL, Token: p.Token}
		if _, err := h.Listeners(ctx); err != nil { // opens the connection that the publishes then use
			return nil, err
		}
		c := &httpCarrier{http: h, batched: p.Batch > 1}
		c.ctx, c.cancel = context.WithCancel(context.Background())
		return c, nil
	}
	conn, err := sluice.DialConn(ctx, p.URL, &sluice.ConnOptions{Token: p.Token, Window: p.Depth})
	if err != nil {
		return nil, err
	}
	return &wsCarrier{conn: conn, batched: p.Batch > 1}, nil
}

// wsCarrier pipelines over one WebSocket.
type wsCarrier struct {
	conn    *sluice.Conn
	batched bool
}

// send waits for nothing but the socket: the lane's slots are the window. The end of the connection
// ends that wait.
func (c *wsCarrier) Send(events []wire.Event, s *Slot) error {
	if c.batched {
		return c.conn.PublishBatchAsync(context.Background(), events[0].Topic, events, s.onResults)
	}
	return c.conn.PublishAsync(context.Background(), &events[0], s.onReceipt)
}

func (c *wsCarrier) Flush() error { return c.conn.Flush(context.Background()) }
func (c *wsCarrier) Close()       { _ = c.conn.Close() } // flush has said what was wrong

// httpCarrier makes one request after the other over one TCP connection.
type httpCarrier struct {
	http    *admin.HTTP
	batched bool
	ctx     context.Context // of its requests
	cancel  func()
}

func (c *httpCarrier) Send(events []wire.Event, s *Slot) error {
	if c.batched {
		results, err := c.http.PublishBatch(c.ctx, events[0].Topic, events)
		s.onResults(results, err)
		return nil
	}
	receipt, err := c.http.Publish(c.ctx, &events[0])
	s.onReceipt(receipt, err)
	return nil
}

func (c *httpCarrier) Flush() error { return nil }
func (c *httpCarrier) Close()       { c.cancel(); c.http.CloseIdle() }
