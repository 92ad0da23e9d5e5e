package consume

import (
	"net/http"
	"time"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/sidecar/internal/session"
)

// Consumers are the clients that get events over HTTP.
type Consumers struct {
	cfg     Config
	leases  leaser
	pulls   pullers
	streams streams
}

// write writes a part of an answer, which the client has some time to read.
func (c *Consumers) write(caller *session.Session, w http.ResponseWriter, conn *http.ResponseController, text []byte) error {
	caller.Share().Take(len(text))
	defer caller.Share().Give(len(text))
	_ = conn.SetWriteDeadline(time.Now().Add(c.cfg.Bounds.SlowClientTimeout))
	_, err := w.Write(text)
	return err
}

// mayJoin reports whether the caller may subscribe to the topic in the path, with the group in the
// path.
func mayJoin(caller *session.Session, r *httpapi.Request) error {
	return caller.May(access.Subscribe, r.PathValue("topic"), r.PathValue("group"))
}
