// Package logging keeps a program's log readable while something goes wrong again and again.
package logging

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// Interval is the least time between two lines that repeat each other.
	Interval = 10 * time.Second
	// maxMessages bounds the messages that are told apart within an Interval. All further ones of a
	// level count as one.
	maxMessages = 1000
	// maxAlike bounds the lines of level warn and above with one message that are told apart within an
	// Interval: an outage has one for each topic and group. All further ones of the message count as one.
	maxAlike = 10

	// LeftOut is the attribute of a line with the number of lines that were left out before it.
	LeftOut = "left_out"
	// Access is the message of the lines of an access log, none of which is left out.
	Access = "access"
)

// names are the attributes that tell messages of level warn and above apart. Others, such as an
// error's text or a number, may differ each time that a message repeats.
var names = []string{
	"topic", "group", "partition", "policy", "node", "listener", "file", "folder", "field", "capture", "outbox", "flag", "variable",
}

// Throttle returns a handler that writes a message at most once in an Interval: the first line at
// once, and at the Interval's end the last one of those that repeated it, with the number of the
// others. A line below level warn repeats another one if all of their attributes are equal. flush
// writes what waits for the end of an Interval.
func Throttle(to slog.Handler) (h slog.Handler, flush func()) {
	t := &throttle{messages: make(map[string]*message), alike: make(map[string]int)}
	return &handler{Handler: to, throttle: t}, t.flush
}

// handler is a slog.Handler. Those made by WithAttrs and WithGroup share the throttle.
type handler struct {
	slog.Handler
	*throttle
	prefix string // the attributes of the logger
}

type throttle struct {
	mu       sync.Mutex
	messages map[string]*message // that were written within the last Interval
	alike    map[string]int      // how many of these there are, by level and message
}

// message is what lines that repeat each other have in common.
type message struct {
	alike   string // its level and message
	timer   *time.Timer
	last    func() // writes the last line that was not written; nil: there is none
	leftOut int    // lines before the last one
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	var b strings.Builder
	b.WriteString(h.prefix)
	for _, a := range attrs {
		identify(&b, a, slog.LevelInfo)
	}
	return &handler{h.Handler.WithAttrs(attrs), h.throttle, b.String()}
}

func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{h.Handler.WithGroup(name), h.throttle, h.prefix + name + "."}
}

func identify(b *strings.Builder, a slog.Attr, level slog.Level) {
	if level < slog.LevelWarn || slices.Contains(names, a.Key) {
		b.WriteString(a.Key + "=" + a.Value.String() + "\n")
	}
}

// Handle implements slog.Handler.
func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == Access {
		return h.Handler.Handle(ctx, r)
	}
	var b strings.Builder
	b.WriteString(r.Level.String() + " " + r.Message + "\n" + h.prefix)
	r.Attrs(func(a slog.Attr) bool {
		identify(&b, a, r.Level)
		return true
	})
	if h.repeats(b.String(), r, func(r slog.Record) { _ = h.Handler.Handle(ctx, r) }) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// repeats reports whether a line repeats one of the last Interval, and then keeps it.
func (t *throttle) repeats(key string, r slog.Record, write func(slog.Record)) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.messages[key]
	alike := r.Level.String() + " " + r.Message
	if m == nil && r.Level >= slog.LevelWarn && t.alike[alike] >= maxAlike {
		key = alike
		m = t.messages[key]
	}
	if m == nil && len(t.messages) >= maxMessages {
		key = r.Level.String()
		m = t.messages[key]
	}
	if m == nil {
		m = &message{alike: alike}
		t.alike[alike]++
		m.timer = time.AfterFunc(Interval, func() { t.end(key, m) })
		t.messages[key] = m
		return false
	}
	if m.last != nil {
		m.leftOut++
	}
	r = r.Clone()
	m.last = func() {
		if m.leftOut > 0 {
			r.AddAttrs(slog.Int(LeftOut, m.leftOut))
		}
		write(r)
	}
	return true
}

// end writes the last line of a message at the end of an Interval, and begins the next one; if
// there is none, it forgets the message.
func (t *throttle) end(key string, m *message) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if m.last == nil {
		t.forget(key, m)
		return
	}
	m.write()
	m.timer.Reset(Interval)
}

func (m *message) write() {
	m.last()
	m.last, m.leftOut = nil, 0
}

func (t *throttle) flush() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, m := range t.messages {
		m.timer.Stop()
		if m.last != nil {
			m.write()
		}
		t.forget(key, m)
	}
}

func (t *throttle) forget(key string, m *message) {
	delete(t.messages, key)
	if t.alike[m.alike]--; t.alike[m.alike] == 0 {
		delete(t.alike, m.alike)
	}
}
