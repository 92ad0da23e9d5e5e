package gateway

import (
	"bufio"
	"bytes"
	"net"
	"net/http"

	"github.com/coder/websocket"

	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/refusal"
)

// serveSocket turns a request into a WebSocket. The connection then has a goroutine of its own, so
// that net/http can free the memory of the request: an idle connection needs less.
func (g *Gateway) serveSocket(w http.ResponseWriter, r *http.Request) {
	if g.refusing() {
		httpapi.WriteError(w, r, refusal.Stopping(), g.cfg.Logger)
		return
	}
	caller, err := g.arrival(r)
	if err != nil {
		g.cfg.Access.Challenge(w, r, err)
		return
	}
	up := &upgrade{ResponseWriter: w, cfg: &g.cfg}
	ws, err := websocket.Accept(up, r, &websocket.AcceptOptions{
		InsecureSkipVerify: true, // httpapi.Guard has checked Origin
		CompressionMode:    websocket.CompressionDisabled,
	})
	if err != nil {
		if up.sendBuffer == nil {
			httpapi.WriteError(w, r, up.why(), g.cfg.Logger)
		}
		return
	}
	accepted := g.admitSocket(func(name string) *conn {
		return newConn(g.ctx, &g.cfg, name, ws, up.sendBuffer, caller)
	})
	if !accepted {
		_ = ws.Close(websocket.StatusGoingAway, closingReason)
		up.sendBuffer.wait()
	}
}

// closingReason goes with the close code 1001.
const closingReason = "the sidecar is shutting down"

// upgrade is a ResponseWriter that puts a send buffer between the WebSocket library and the
// connection. It does not send the library's own refusals, which are plain text, to the client.
type upgrade struct {
	http.ResponseWriter
	cfg        *Config
	sendBuffer *sendBuffer // set once hijacked
	status     int
	text       bytes.Buffer // of a refusal
}

// controlFrame is the size of a whole control frame. So the library writes a control frame with one
// call, and a data frame with two.
const controlFrame = 256

// Hijack takes the connection over; the library calls it.
func (u *upgrade) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	socket, brw, err := http.NewResponseController(u.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	u.sendBuffer = newSendBuffer(socket, u.cfg.Bounds, u.cfg.Memory)
	return u.sendBuffer, bufio.NewReadWriter(brw.Reader, bufio.NewWriterSize(u.sendBuffer, controlFrame)), nil
}

// WriteHeader passes on only the switch of protocols.
func (u *upgrade) WriteHeader(status int) {
	u.status = status
	if status == http.StatusSwitchingProtocols {
		u.ResponseWriter.WriteHeader(status)
	}
}

func (u *upgrade) Write(p []byte) (int, error) { return u.text.Write(p) }

// why is why the library refused the upgrade.
func (u *upgrade) why() *wire.Error {
	if u.status >= http.StatusInternalServerError {
		return wire.AsError(nil)
	}
	return wire.Errorf(wire.BadRequest, "this is the WebSocket endpoint: %s", bytes.TrimSpace(u.text.Bytes()))
}
