package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"unicode/utf8"

	"github.com/coder/websocket"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/audit"
)

// read handles frames until the connection ends, and says how to close it.
func (c *conn) read() closing {
	for {
		// A context that could end would cost a timer per frame; what ends the
		// connection closes the outbox, and reading with it.
		kind, r, err := c.ws.Reader(context.Background())
		if err != nil {
			return afterError(err)
		}
		s := newScratch()
		s.b, err = appendAll(s.b, r)
		if err == nil {
			if kind == websocket.MessageText && !utf8.Valid(s.b) {
				s.free()
				return closing{websocket.StatusInvalidFramePayloadData, "a text frame must be UTF-8"}
			}
			c.handle(kind, s.b)
		}
		s.free()
		if err != nil {
			return afterError(err)
		}
		if c.over != nil {
			return *c.over
		}
	}
}

// appendAll appends what r has left.
func appendAll(dst []byte, r io.Reader) ([]byte, error) {
	for {
		if len(dst) == cap(dst) {
			dst = append(dst, 0)[:len(dst)]
		}
		n, err := r.Read(dst[len(dst):cap(dst)])
		dst = dst[:len(dst)+n]
		if err == io.EOF {
			return dst, nil
		}
		if err != nil {
			return dst, err
		}
	}
}

// afterError says how to close a connection that cannot be read: where the peer
// broke the protocol it is told so and may finish what it is sending, since
// closing the socket in its face could destroy the close frame.
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

// handle does what one frame asks for. frame is not kept.
func (c *conn) handle(kind websocket.MessageType, frame []byte) {
	if kind != websocket.MessageText {
		c.replyError(new(wire.Request), wire.Errorf(wire.BadRequest, "a binary frame: send JSON in text frames"))
		return
	}
	req, bad := wire.DecodeRequest(frame, c.cfg.Limits)
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
	who, err := c.identity()
	if err == nil {
		err = allowed(who, req)
	}
	if err != nil {
		if req.Op == wire.OpSubscribe {
			c.note(audit.Subscribe, subKey{req.Topic, req.Group}, err)
		}
		c.replyError(req, err)
		return
	}
	c.do(who, req, len(frame))
}

// do dispatches an op that came in a frame of so many bytes.
func (c *conn) do(who *access.Identity, req *wire.Request, size int) {
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

// shorten keeps a client's name or id from filling an error.
func shorten(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return string(bytes.ToValidUTF8([]byte(s[:most]), nil)) + "…"
}
