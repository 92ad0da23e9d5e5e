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

// carrier is one connection that carries publishes. One goroutine uses it.
type carrier interface {
	// send publishes events, which are the caller's again when it returns. The slot's callback gets
	// the answer, then or later, unless send fails.
	send(events []wire.Event, s *slot) error
	// flush waits until every send is answered.
	flush() error
	close()
}

// open opens a connection. Where the plan has a batch of 1, events go in requests of their own, not
// in batches of one.
func (p *Publishing) open(ctx context.Context) (carrier, error) {
	if p.Transport == TransportHTTP {
		h := &admin.HTTP{AppURL: p.URL, Token: p.Token}
		if _, err := h.Topics(ctx); err != nil { // opens the connection that the publishes then use
			return nil, err
		}
		return &httpCarrier{http: h, topic: p.Topic, batched: p.Batch > 1}, nil
	}
	conn, err := sluice.DialConn(ctx, p.URL, &sluice.ConnOptions{Token: p.Token, Window: p.Depth})
	if err != nil {
		return nil, err
	}
	return &wsCarrier{conn: conn, topic: p.Topic, batched: p.Batch > 1}, nil
}

// wsCarrier pipelines over one WebSocket.
type wsCarrier struct {
	conn    *sluice.Conn
	topic   string
	batched bool
}

// send waits for nothing but the socket: the lane's slots are the window. The end of the connection
// ends that wait.
func (c *wsCarrier) send(events []wire.Event, s *slot) error {
	if c.batched {
		return c.conn.PublishBatchAsync(context.Background(), c.topic, events, s.onResults)
	}
	return c.conn.PublishAsync(context.Background(), &events[0], s.onReceipt)
}

func (c *wsCarrier) flush() error { return c.conn.Flush(context.Background()) }
func (c *wsCarrier) close()       { _ = c.conn.Close() } // flush has said what was wrong

// httpCarrier makes one request after the other over one TCP connection.
type httpCarrier struct {
	http    *admin.HTTP
	topic   string
	batched bool
}

func (c *httpCarrier) send(events []wire.Event, s *slot) error {
	if c.batched {
		results, err := c.http.PublishBatch(context.Background(), c.topic, events)
		s.onResults(results, err)
		return nil
	}
	receipt, err := c.http.Publish(context.Background(), &events[0])
	s.onReceipt(receipt, err)
	return nil
}

func (c *httpCarrier) flush() error { return nil }
func (c *httpCarrier) close()       { c.http.CloseIdle() }
