package httpapi

import (
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// RefuseConn answers a connection that was not let in, whatever it asks for, with
// an error of HTTP, and reads until the peer has gone, or the connection's
// deadline: closing it while the peer still sends could destroy the answer.
func RefuseConn(c net.Conn, e *wire.Error) {
	body := append(wire.AppendErrorBody(nil, e), '\n')
	status := e.Code.HTTPStatus()
	retry := ""
	if ms, ok := e.RetryAfterMS(); ok {
		retry = fmt.Sprintf("Retry-After: %d\r\n", (ms+999)/1000)
	}
	_, err := fmt.Fprintf(c, "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nX-Content-Type-Options: nosniff\r\n%sConnection: close\r\n\r\n%s",
		status, http.StatusText(status), len(body), retry, body)
	if err != nil {
		return
	}
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	_, _ = io.CopyN(io.Discard, c, maxHeaderBytes)
}
