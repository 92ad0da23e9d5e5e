package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sluice-bus/sluice/internal/terminal"
	"github.com/sluice-bus/sluice/sdk/admin"
)

// fleetRedraw bounds how often the progress of a fleet's export is drawn.
const fleetRedraw = 200 * time.Millisecond

// fleetProgress is a few lines on a terminal that say how far an export of the fleet has come, and
// how much each part has given:
//
//	exporting  1,204,000 events  48,160/s  0:25  at 2026-01-02 15:04:05
//	  store of node-1  1,000,000
//	  spool of node-2  204,000
//	  not reached: node-3 (10.0.0.3:8083): connection refused
//
// Elsewhere it shows nothing. It is for one goroutine.
type fleetProgress struct {
	out   io.Writer // nil: nothing is shown
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
	p := &fleetProgress{now: time.Now}
	if terminal.Is(w) {
		p.out = w
	}
	p.began = p.now()
	p.drawn = p.began // short exports show nothing
	return p
}

// shown reports whether there is a terminal.
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
	if p.events%64 != 0 || !p.due() {
		return
	}
	var e struct{ TS int64 }
	_ = json.Unmarshal(line, &e) // of a line that is no event, no time is shown
	p.ts = e.TS
	p.draw()
}

// told takes what the sidecar says of the parts.
func (p *fleetProgress) told(parts []admin.PartCount) {
	p.parts = parts
	p.draw()
}

// due reports whether it is time to draw again.
func (p *fleetProgress) due() bool { return p.shown() && p.now().Sub(p.drawn) >= fleetRedraw }

func (p *fleetProgress) draw() {
	if !p.due() {
		return
	}
	p.drawn = p.now()
	columns, rows := terminal.Size(p.out)
	p.replace(crop(p.text(p.drawn.Sub(p.began)), columns, rows-1))
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
	fmt.Fprintf(&b, "exporting  %s events  %s/s  %s", terminal.Count(p.events), terminal.Count(rate), elapsed.Round(time.Second))
	if p.ts > 0 {
		fmt.Fprintf(&b, "  at %s", time.UnixMilli(p.ts).UTC().Format("2006-01-02 15:04:05"))
	}
	b.WriteByte('\n')
	for _, part := range p.parts {
		fmt.Fprintf(&b, "  %s  %s\n", plain(part.Part), terminal.Count(part.Events))
	}
	for _, peer := range p.away {
		fmt.Fprintf(&b, "  not reached: %s: %s\n", plain(peerName(peer)), plain(peer.Reason))
	}
	return b.String()
}

func peerName(p admin.Peer) string {
	if p.NodeID == "" {
		return p.Address
	}
	return fmt.Sprintf("%s (%s)", p.NodeID, p.Address)
}
