package terminal

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"
)

// redrawEvery bounds how often a progress line is drawn: ten times a second, which is as fast as it
// can be read.
const redrawEvery = 100 * time.Millisecond

// Progress is one line on a terminal that says how far a task has come. On anything but a terminal
// it shows nothing. Its methods may be called from several goroutines at once.
type Progress struct {
	label string
	total int64
	out   io.Writer // nil shows nothing
	began time.Time

	mu    sync.Mutex
	done  int64
	drawn time.Time
}

// NewProgress starts a line on w that begins with label and counts up to total, or, where total is
// 0 because it is not known, just counts.
func NewProgress(w io.Writer, label string, total int64) *Progress {
	if !Is(w) {
		w = nil
	}
	return newProgress(Raw(w), label, total)
}

func newProgress(out io.Writer, label string, total int64) *Progress {
	now := time.Now()
	// Counting as drawn keeps the first line back until there is a rate to show, and short tasks
	// from showing any.
	return &Progress{label: label, total: total, out: out, began: now, drawn: now}
}

// Add counts n more as done. The line is redrawn at most ten times a second, and only here.
func (p *Progress) Add(n int64) {
	if p.out == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done += n
	if now := time.Now(); now.Sub(p.drawn) >= redrawEvery {
		p.drawn = now
		columns, _ := Size(p.out)
		p.draw(p.line(now.Sub(p.began), columns-1)) // a full last column makes some terminals wrap
	}
}

// Finish removes the line, so that the next output, a summary or an error, takes its place.
func (p *Progress) Finish() {
	if p.out == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.draw("")
}

// draw replaces the line: back to its start, clear it, write. Writers of the results report errors.
func (p *Progress) draw(line string) {
	_, _ = io.WriteString(p.out, "\r\x1b[K"+line)
}

// line is what is shown after the given time, in at most columns bytes:
//
//	publishing [=========>          ]  46%  13,800/30,000  5,200/s  ETA 0:03
//	exporting  13,800  5,200/s  0:02
//
// The rate is the average since the start, which also makes the estimate steady.
func (p *Progress) line(elapsed time.Duration, columns int) string {
	rate := 0.0
	if elapsed > 0 {
		rate = float64(p.done) / elapsed.Seconds()
	}
	if p.total <= 0 {
		return fit(fmt.Sprintf("%s  %s  %s/s  %s", p.label, Count(p.done), Count(int64(rate)), clock(elapsed)), columns)
	}
	// A task may turn out larger than was announced; it is then nearly done for a while.
	fraction := min(float64(p.done)/float64(p.total), 1)
	eta := "-:--"
	if rate > 0 {
		eta = clock(time.Duration(float64(max(p.total-p.done, 0)) / rate * float64(time.Second)))
	}
	head := p.label + " "
	tail := fmt.Sprintf(" %3.0f%%  %s/%s  %s/s  ETA %s", 100*fraction, Count(p.done), Count(p.total), Count(int64(rate)), eta)
	const least, most = 10, 40 // cells of a bar that is worth its place
	cells := min(columns-len(head)-len(tail)-len("[]"), most)
	if cells < least {
		return fit(head+tail, columns)
	}
	return head + bar(fraction, cells) + tail
}

func bar(fraction float64, cells int) string {
	full := int(fraction * float64(cells))
	if full == cells {
		return "[" + strings.Repeat("=", cells) + "]"
	}
	return "[" + strings.Repeat("=", full) + ">" + strings.Repeat(" ", cells-full-1) + "]"
}

func fit(line string, columns int) string { return line[:min(len(line), max(columns, 0))] }

// Count writes n with commas between thousands. n is not negative.
func Count(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// clock writes a duration as minutes and seconds, with hours where there are any.
func clock(d time.Duration) string {
	seconds := int64(d.Round(time.Second) / time.Second)
	if seconds >= 3600 {
		return fmt.Sprintf("%d:%02d:%02d", seconds/3600, seconds/60%60, seconds%60)
	}
	return fmt.Sprintf("%d:%02d", seconds/60, seconds%60)
}
