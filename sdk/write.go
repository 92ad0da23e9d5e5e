package sluice

import (
	"context"

	"github.com/coder/websocket"
)

// queueBytes bounds the publishes that wait to be written; the frame that crosses it is the last
// one that is let in.
const queueBytes = 4 << 20

// frames are encoded messages one after the other.
type frames struct {
	bytes []byte
	ends  []int // of each message in bytes
}

// seal ends the message that was appended to bytes.
func (f *frames) seal() { f.ends = append(f.ends, len(f.bytes)) }

func (f *frames) reset() { f.bytes, f.ends = f.bytes[:0], f.ends[:0] }

// keptBytes is the largest buffer that is used again; a larger one was needed for something
// unusual.
const keptBytes = 2 * queueBytes

// write sends the queued frames until the connection ends. Frames that gather while one load is
// written are the next load. The connection is flushed when no frame is left.
func (c *Conn) write() {
	defer func() { _ = c.ws.CloseNow() }()
	var load frames
	for {
		c.mu.Lock()
		for len(c.queue.ends) == 0 && c.cause == nil {
			c.filled.Wait()
		}
		if cap(load.bytes) > keptBytes {
			load = frames{}
		}
		load.reset()
		load, c.queue, c.acks = c.queue, load, nil
		c.room.Broadcast()
		c.mu.Unlock()

		if len(load.ends) == 0 {
			// Closed. The handshake ends the reader, too.
			_ = c.ws.Close(websocket.StatusNormalClosure, "")
			return
		}
		if err := c.send(&load); err != nil {
			c.abort(err)
			return
		}
	}
}

// send writes a load of messages, and flushes unless more are waiting.
func (c *Conn) send(load *frames) error {
	c.cork.cork()
	start := 0
	for _, end := range load.ends {
		// A context that can end would cost a timer for each message; closing the connection ends a
		// blocked write, too.
		if err := c.ws.Write(context.Background(), websocket.MessageText, load.bytes[start:end]); err != nil {
			return err
		}
		start = end
	}
	c.mu.Lock()
	more := len(c.queue.ends) > 0
	c.mu.Unlock()
	if more {
		return nil
	}
	return c.cork.uncork()
}
