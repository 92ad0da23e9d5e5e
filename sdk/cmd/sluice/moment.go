package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// moment is the value of a flag that is a time: in milliseconds since the epoch, as RFC 3339 or a part of it in local time, or
// how long ago it is.
type moment struct{ ms int64 }

// momentForms says how to write one.
const momentForms = "write 2026-11-27T10:00:00Z, 2026-11-27T10:00, 2026-11-27, 15m, 3h or 2d (ago), or milliseconds since the epoch"

// layouts are the forms of a time; without a zone it is local.
var layouts = []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02 15:04", time.DateOnly}

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *moment) UnmarshalText(text []byte) error {
	ms, ok := parseMoment(string(text), time.Now())
	if !ok {
		return fmt.Errorf("%q is no time: %s", text, momentForms)
	}
	m.ms = ms
	return nil
}

// parseMoment returns the milliseconds since the epoch of a time.
func parseMoment(text string, now time.Time) (ms int64, ok bool) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n >= 0 {
		return n, true
	}
	for _, layout := range layouts {
		if at, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return at.UnixMilli(), true
		}
	}
	if days, found := strings.CutSuffix(text, "d"); found {
		if n, err := strconv.Atoi(days); err == nil && n >= 0 {
			return now.AddDate(0, 0, -n).UnixMilli(), true
		}
	}
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		return now.Add(-ago).UnixMilli(), true
	}
	return 0, false
}

// optional is the moment as the SDK takes one that may be left out.
func (m *moment) optional() *int64 {
	if m == nil {
		return nil
	}
	return &m.ms
}
