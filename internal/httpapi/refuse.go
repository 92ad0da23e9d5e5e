package httpapi

import (
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
)

// RefuseConn answers the first request of a refused connection with an HTTP error. It waits for the
// request's first byte, because clients take an earlier answer for a broken connection. Then it
// reads until the peer has gone, or the connection's deadline: closing the connection while the
// peer still sends could destroy the answer.
func RefuseConn(c net.Conn, e *wire.Error) {
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		return
	}
	body := append(codec.AppendErrorBody(nil, e), '\n')
	status := e.Code.HTTPStatus()
	retry := ""
	if ms, ok := e.RetryAfterMS(); ok {
		retry = fmt.Sprintf("Retry-After: %d\r\n", (ms+999)/1000)
	}
	_, err := fmt.Fprintf(c, "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"+
		"X-Content-Type-Options: nosniff\r\n%sConnection: close\r\n\r\n%s",
		status, http.StatusText(status), len(body), retry, body)
	if err != nil {
		return
	}
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	_, _ = io.CopyN(io.Discard, c, maxHeaderBytes)
}
