package ws

import (
	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/ingest"
)

// publish admits the events of a PUBLISH. The reply follows when the log has answered for all of
// them.
func (c *conn) publish(who *access.Identity, req *codec.Request, size int) {
	items, bad := ingest.FromFrame(req)
	if bad != nil {
		c.replyError(req, bad)
		return
	}
	c.authorize(who, items)
	if !c.window.enter(len(items), size) {
		return
	}
	err := c.cfg.Publisher.Publish(c.caller.Attribute(c.ctx), c.caller.Publishes, items, func(results []wire.ResultItem) {
		c.caller.NotePublished(who, items, results, nil)
		c.replyPublished(req, results)
		c.window.leave(len(items), size)
	})
	if err != nil {
		c.replyError(req, err)
		c.window.leave(len(items), size)
	}
}

func (c *conn) replyPublished(req *codec.Request, results []wire.ResultItem) {
	c.reply(func(dst []byte) []byte {
		switch first := &results[0]; {
		case req.IsBatch:
			return codec.AppendResults(dst, results, req.Corr, req.HasCorr)
		case first.Err != nil:
			return codec.AppendErr(dst, first.Err, req.Corr, req.HasCorr)
		default:
			return codec.AppendReceipt(dst, &first.Receipt, req.Corr, req.HasCorr)
		}
	})
}

// countRefused counts a PUBLISH that could not be decoded among the refusals of its topic, unless a
// stranger sent it.
func (c *conn) countRefused(req *codec.Request, err *wire.Error) {
	if req.Op == wire.OpPublish && c.caller.Known() {
		c.cfg.Publisher.Refused(req.Topic, err.Code, 1)
	}
}
