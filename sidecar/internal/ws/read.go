package ws

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"unicode/utf8"

	"github.com/coder/websocket"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/receive"
	"github.com/sluice-bus/sluice/sidecar/internal/sendbuffer"
	"github.com/sluice-bus/sluice/sidecar/internal/telemetry"
)

// read handles frames until the connection ends, and returns how to close it.
func (c *conn) read() closing {
	for {
		// A context that could end would cost a timer per frame. When the connection ends, the send
		// buffer is closed, and this ends the read.
		kind, r, err := c.ws.Reader(context.Background())
		if err != nil {
			return afterError(err)
		}
		if how := c.message(kind, r); how != nil {
			return *how
		}
		if c.over != nil {
			return *c.over
		}
	}
}

// message receives and handles one message, and returns how to close the connection if it has to
// end.
func (c *conn) message(kind websocket.MessageType, r io.Reader) *closing {
	s := sendbuffer.NewScratch()
	defer s.Free()
	in := receive.Message{B: s.B, Budget: c.caller.Share(), AtMost: c.cfg.Limits.FrameBytes}
	defer in.Free()
	c.socket.beginMessage()
	err := in.ReadAll(r)
	if full, ok := err.(*receive.NoMemory); ok {
		return c.shed(r, in.B, full.Refusal)
	}
	if err == nil {
		err = c.socket.endMessage()
	}
	s.B = in.B
	if err != nil {
		return c.unread(err)
	}
	if kind == websocket.MessageText && !utf8.Valid(s.B) {
		return &closing{websocket.StatusInvalidFramePayloadData, "a text frame must be UTF-8"}
	}
	c.handle(kind, s.B)
	return nil
}

// shed refuses a message for which there is no memory, once the rest of it has arrived. The refusal
// has the message's corr if that is at the beginning of the message.
func (c *conn) shed(r io.Reader, beginning []byte, why *wire.Error) *closing {
	req, _ := codec.DecodeRequest(beginning, c.cfg.Limits)
	known := &codec.Request{Op: req.Op, Topic: req.Topic, Group: req.Group, Corr: req.Corr, HasCorr: req.HasCorr}
	_, err := io.CopyBuffer(discarding{}, r, beginning[:cap(beginning)])
	if err == nil {
		err = c.socket.endMessage()
	}
	if err != nil {
		return c.unread(err)
	}
	c.cfg.Metrics.Shed(telemetry.ShedMemory)
	c.countRefused(known, why)
	c.replyError(known, why)
	return nil
}

// discarding is io.Discard without its own buffer.
type discarding struct{}

func (discarding) Write(p []byte) (int, error) { return len(p), nil }

// unread returns how to close a connection whose message could not be read to its end.
func (c *conn) unread(err error) *closing {
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return new(afterError(err))
	}
	c.cfg.Metrics.Shed(telemetry.ShedLate)
	late := wire.Errorf(wire.BadRequest, "the message did not arrive completely within %v of its beginning", c.cfg.Bounds.ReceiveTimeout)
	c.replyError(new(codec.Request), late)
	return &closing{websocket.StatusPolicyViolation, "a message did not arrive completely in time"}
}

// afterError returns how to close a connection that cannot be read. A peer that broke the protocol
// is told so, and may finish sending: closing the socket at once could destroy the close frame.
func afterError(err error) closing {
	var network net.Error
	switch {
	case errors.Is(err, websocket.ErrMessageTooBig):
		return closing{websocket.StatusMessageTooBig, ""}
	case websocket.CloseStatus(err) != -1,
		errors.Is(err, net.ErrClosed), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.As(err, &network):
		return closing{}
	}
	return closing{websocket.StatusProtocolError, ""}
}

// handle executes one frame, and does not keep it.
func (c *conn) handle(kind websocket.MessageType, frame []byte) {
	if kind != websocket.MessageText {
		c.replyError(new(codec.Request), wire.Errorf(wire.BadRequest, "a binary frame: send JSON in text frames"))
		return
	}
	req, bad := codec.DecodeRequest(frame, c.cfg.Limits)
	if bad != nil {
		c.countRefused(req, bad)
		c.replyError(req, bad)
		return
	}
	if ending := c.refusing(); ending != nil {
		c.replyError(req, ending)
		return
	}
	if req.Op == wire.OpAuth {
		c.authenticate(req)
		return
	}
	who, err := c.caller.Renew()
	if err == nil {
		err = allowed(who, req)
	}
	if err != nil {
		c.replyError(req, err)
		return
	}
	size := len(frame)
	switch req.Op {
	case wire.OpPing:
		c.replyOK(req)
	case wire.OpPublish:
		c.publish(who, req, size)
	case wire.OpSubscribe:
		c.subscribe(req)
	case wire.OpUnsubscribe:
		c.unsubscribe(req)
	case wire.OpPause, wire.OpResume:
		c.pause(req)
	case wire.OpAck, wire.OpNack:
		c.settle(req, size)
	case wire.OpModAck:
		c.extend(req)
	}
}
