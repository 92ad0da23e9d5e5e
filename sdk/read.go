package sluice

import (
	"bytes"
	"context"
	"fmt"

	"github.com/coder/websocket"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
)

// read handles the sidecar's messages until the connection ends, and then fails the calls that have
// no answer.
func (c *Conn) read() {
	defer close(c.done)
	var text bytes.Buffer
	for {
		err := c.readMessage(&text)
		if err == nil {
			err = c.handle(text.Bytes())
		}
		if err != nil {
			c.abort(ending(err))
			break
		}
		if text.Cap() > keptBytes {
			text = bytes.Buffer{}
		}
	}
	for {
		c.mu.Lock()
		pending, ok := c.calls.removeAny()
		cause := c.cause
		c.mu.Unlock()
		if !ok {
			return
		}
		pending.answer(nil, cause)
		c.finished()
	}
}

// ending says in one sentence how the sidecar closed the connection, where it did so in order.
func ending(err error) error {
	if closed, ok := asType[websocket.CloseError](err); ok {
		return closedError{closed}
	}
	return err
}

// closedError is the sidecar's good-bye.
type closedError struct{ is websocket.CloseError }

func (e closedError) Error() string {
	if e.is.Reason != "" {
		return fmt.Sprintf("the sidecar closed it: %s (%d)", e.is.Reason, e.is.Code)
	}
	return fmt.Sprintf("the sidecar closed it (%d)", e.is.Code)
}

func (c *Conn) readMessage(text *bytes.Buffer) error {
	_, message, err := c.ws.Reader(context.Background())
	if err != nil {
		return err
	}
	text.Reset()
	_, err = text.ReadFrom(message)
	return err
}

// handle answers a call or delivers events.
func (c *Conn) handle(text []byte) error {
	reply, err := codec.DecodeReply(text)
	if err != nil {
		return err
	}
	switch reply.Op {
	case wire.OpOK, wire.OpErr:
		return c.answer(reply)
	case wire.OpEvent, wire.OpEvents:
		c.mu.Lock()
		sub := c.subs[subKey{reply.Topic, reply.Group}]
		c.mu.Unlock()
		if sub == nil {
			return fmt.Errorf("the sidecar sent an event of topic %q to group %q, which is not subscribed", reply.Topic, reply.Group)
		}
		c.delivering.Store(true)
		sub.deliver(reply.Deliveries)
		c.delivered.Add(1)
		c.delivering.Store(false)
	case wire.OpAssigned, wire.OpRevoked:
		c.mu.Lock()
		sub := c.subs[subKey{reply.Topic, reply.Group}]
		c.mu.Unlock()
		if sub != nil && sub.divide != nil {
			sub.divide(reply.Op, reply.Partitions)
		}
	}
	return nil
}

func (c *Conn) answer(reply *codec.Reply) error {
	c.mu.Lock()
	answered, ok := c.calls.remove(reply.Corr)
	if answered.publish {
		c.publishes--
		if c.waiting > 0 {
			c.room.Broadcast()
		}
	}
	c.mu.Unlock()
	if ok {
		answered.answer(reply, nil)
		c.finished()
		return nil
	}
	if reply.Err != nil {
		return fmt.Errorf("the sidecar refused a frame without saying which: %w", reply.Err)
	}
	return fmt.Errorf("the sidecar answered a request that was not made (corr %q)", reply.Corr)
}
