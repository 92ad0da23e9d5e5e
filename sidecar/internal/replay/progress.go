package replay

import (
	"fmt"
	"strings"
	"time"
)

// progressEvery is the time between two lines of progress in an export.
const progressEvery = 500 * time.Millisecond

// progressLook is how many events pass between two readings of the clock.
const progressLook = 256

// progress writes, between the events of an export, how many came from each part, as lines of the
// form {"progress":[{"part":"store of node-1","events":17},…]}. A nil *progress writes nothing.
type progress struct {
	lastLine time.Time
	seen     int
}

func (h *handler) newProgress(req exportRequest) *progress {
	if !req.progress {
		return nil
	}
	return &progress{lastLine: time.Now()}
}

// write writes a line, if it is time for one.
func (p *progress) write(out *body, in reading, wait bool) {
	if p == nil {
		return
	}
	if p.seen++; !wait && p.seen%progressLook != 0 {
		return
	}
	if time.Since(p.lastLine) >= progressEvery {
		p.lastLine = time.Now()
		p.line(out, in)
	}
}

// end writes the last line, which counts all.
func (p *progress) end(out *body, in reading) {
	if p != nil && !out.headOnly() {
		p.line(out, in)
	}
}

func (p *progress) line(out *body, in reading) {
	if parts := in.parts(); parts != nil {
		out.text(`{"progress":`)
		out.json(parts)
		out.text("}\n")
	}
}

// partsText is the text of counts in a header: "store of node-1=17, spool of node-2=4".
func partsText(parts []PartCount) string {
	texts := make([]string, len(parts))
	for i, p := range parts {
		texts[i] = fmt.Sprintf("%s=%d", headerText(p.Part), p.Events)
	}
	return strings.Join(texts, ", ")
}

// missingText is the text of names in a header.
func missingText(names []string) string {
	texts := make([]string, len(names))
	for i, name := range names {
		texts[i] = headerText(name)
	}
	return strings.Join(texts, ", ")
}

// headerText is a name in the form for a list in a header. Each byte that is not visible ASCII, or
// that would end the name, becomes % and two hexadecimal digits.
func headerText(name string) string {
	var b strings.Builder
	for i := range len(name) {
		if c := name[i]; c < ' ' || c > '~' || strings.IndexByte(",=%", c) >= 0 {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}
