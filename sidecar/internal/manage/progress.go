package manage

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/refusal"
)

// progressEvery is the least time between two lines of progress.
const progressEvery = 100 * time.Millisecond

// progress answers a request with lines about a long change, of a known number of items. A client
// that is gone gets none, since its request's context has ended.
type progress struct {
	w    http.ResponseWriter
	of   int
	last time.Time // when the last line was written
}

func newProgress(w http.ResponseWriter, of int) *progress {
	w.Header().Set("Content-Type", "application/x-ndjson")
	return &progress{w: w, of: of}
}

func (p *progress) line(content any) {
	out := json.NewEncoder(p.w)
	out.SetEscapeHTML(false)
	_ = out.Encode(content)
	_ = http.NewResponseController(p.w).Flush()
}

type progressLine struct {
	Done int  `json:"done"`
	Of   int  `json:"of"`
	OK   bool `json:"ok,omitempty"`
}

// at writes how many items are done, unless a line was written just before.
func (p *progress) at(done int) {
	if now := time.Now(); now.Sub(p.last) >= progressEvery {
		p.last = now
		p.line(progressLine{Done: done, Of: p.of})
	}
}

// end writes the last line: either all is done, or the error, whose code end returns.
func (p *progress) end(err error) wire.Code {
	if err == nil {
		p.line(progressLine{Done: p.of, Of: p.of, OK: true})
		return ""
	}
	line, code := refusal.Line(err)
	p.line(line)
	return code
}
