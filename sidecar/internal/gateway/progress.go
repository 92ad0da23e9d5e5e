package gateway

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// progressEvery is the least time between two lines of progress.
const progressEvery = 100 * time.Millisecond

// progress answers a request with the lines of a long change of so many things. A client that has
// gone gets none: its request's context is over.
type progress struct {
	w    http.ResponseWriter
	of   int
	last time.Time // when a line was written
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

// at says how many are done, unless a line was written just before.
func (p *progress) at(done int) {
	if now := time.Now(); now.Sub(p.last) >= progressEvery {
		p.last = now
		p.line(progressLine{Done: done, Of: p.of})
	}
}

// end writes the last line: all is done, or why not, whose code it returns.
func (p *progress) end(err error) wire.Code {
	if err == nil {
		p.line(progressLine{Done: p.of, Of: p.of, OK: true})
		return ""
	}
	line, code := errorLine(err)
	p.line(line)
	return code
}

// errorLine is the last line of an answer in lines that failed.
func errorLine(err error) (line map[string]string, code wire.Code) {
	e := wire.AsError(refusal(err))
	return map[string]string{"error": e.Msg, "code": string(e.Code)}, e.Code
}
