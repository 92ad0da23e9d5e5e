package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/sluice-bus/sluice/internal/terminal"
	"github.com/sluice-bus/sluice/sdk/admin"
)

// fleetRedraw bounds how often the progress of a fleet's export is drawn.
const fleetRedraw = 200 * time.Millisecond

// fleetProgress is a few lines on a terminal that say how far an export of the
// fleet has come, and how much each part has given:
//
//	exporting  1,204,000 events  48,160/s  0:25  at 2026-01-02 15:04:05
//	  store of node-1  1,000,000
//	  spool of node-2  204,000
//	  not reached: node-3 (10.0.0.3:8083): connection refused
//
// On anything but a terminal it shows nothing. It is for one goroutine.
type fleetProgress struct {
	out   io.Writer // nil: nothing is shown
	size  func() (columns, rows int)
	now   func() time.Time
	began time.Time
	drawn time.Time

	events int64
	ts     int64 // of the last event; 0: not known
	parts  []admin.PartCount
	away   []admin.Peer
	lines  int // on the terminal now
}

func newFleetProgress(w io.Writer) *fleetProgress {
	p := &fleetProgress{now: time.Now, size: func() (int, int) { return 80, 24 }}
	if file, ok := terminal.Raw(w).(*os.File); ok && terminal.Is(w) {
		p.out = w
		p.size = func() (int, int) {
			columns, rows, err := term.GetSize(int(file.Fd()))
			if err != nil {
				return 80, 24
			}
			return columns, rows
		}
	}
	p.began = p.now()
	p.drawn = p.began // short exports show nothing
	return p
}

// shown says that somebody watches.
func (p *fleetProgress) shown() bool { return p.out != nil }

// fleet remembers which sidecars do not answer.
func (p *fleetProgress) fleet(peers []admin.Peer) {
	for _, peer := range peers {
		if !peer.Reachable {
			p.away = append(p.away, peer)
		}
	}
}

// event counts one.
func (p *fleetProgress) event(line []byte) {
	p.events++
	if !p.shown() || p.events%64 != 0 {
		return
	}
	p.ts = tsOf(line)
	p.draw()
}

// told takes what the sidecar says of the parts.
func (p *fleetProgress) told(parts []admin.PartCount) {
	p.parts = parts
	p.draw()
}

func (p *fleetProgress) draw() {
	now := p.now()
	if !p.shown() || now.Sub(p.drawn) < fleetRedraw {
		return
	}
	p.drawn = now
	columns, rows := p.size()
	text := crop(p.text(now.Sub(p.began)), columns, rows-1)
	p.replace(text)
}

// finish takes the lines away.
func (p *fleetProgress) finish() {
	if p.shown() {
		p.replace("")
	}
}

// replace puts text in the place of what was drawn before. The writers of the export report errors.
func (p *fleetProgress) replace(text string) {
	back := "\r"
	if p.lines > 0 {
		back = fmt.Sprintf("\r\x1b[%dA", p.lines)
	}
	_, _ = io.WriteString(terminal.Raw(p.out), back+"\x1b[J"+terminal.Shown(text))
	p.lines = strings.Count(text, "\n")
}

func (p *fleetProgress) text(elapsed time.Duration) string {
	var b strings.Builder
	rate := int64(0)
	if elapsed > 0 {
		rate = int64(float64(p.events) / elapsed.Seconds())
	}
	fmt.Fprintf(&b, "exporting  %s events  %s/s  %s", thousands(p.events), thousands(rate), elapsed.Round(time.Second))
	if p.ts > 0 {
		fmt.Fprintf(&b, "  at %s", time.UnixMilli(p.ts).UTC().Format("2006-01-02 15:04:05"))
	}
	b.WriteByte('\n')
	for _, part := range p.parts {
		fmt.Fprintf(&b, "  %s  %s\n", plain(part.Part), thousands(part.Events))
	}
	for _, peer := range p.away {
		fmt.Fprintf(&b, "  not reached: %s: %s\n", plain(peerName(peer)), plain(peer.Reason))
	}
	return b.String()
}

// thousands writes n with commas between them.
func thousands(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

func peerName(p admin.Peer) string {
	if p.NodeID == "" {
		return p.Address
	}
	return fmt.Sprintf("%s (%s)", p.NodeID, p.Address)
}

// tsOf is the ts of an event as it is sent, or 0: {"id":"…","ts":1723140000000,…
func tsOf(line []byte) int64 {
	const name = `","ts":`
	i := bytes.Index(line, []byte(name))
	if i < 0 {
		return 0
	}
	digits := line[i+len(name):]
	end := bytes.IndexByte(digits, ',')
	if end < 0 {
		return 0
	}
	ts, err := strconv.ParseInt(string(digits[:end]), 10, 64)
	if err != nil {
		return 0
	}
	return ts
}
