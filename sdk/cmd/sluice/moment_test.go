package main

import (
	"testing"
	"time"
)

func TestMoment(t *testing.T) {
	now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.FixedZone("", 3600))
	for text, want := range map[string]time.Time{
		"1723140000000":             time.UnixMilli(1723140000000),
		"0":                         time.UnixMilli(0),
		"2026-11-27T10:00:00Z":      time.Date(2026, 11, 27, 10, 0, 0, 0, time.UTC),
		"2026-11-27T10:00:00.5Z":    time.Date(2026, 11, 27, 10, 0, 0, 500e6, time.UTC),
		"2026-11-27T10:00:00-02:00": time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC),
		"2026-11-27T10:00":          time.Date(2026, 11, 27, 9, 0, 0, 0, time.UTC),
		"2026-11-27 10:00:01":       time.Date(2026, 11, 27, 9, 0, 1, 0, time.UTC),
		"2026-11-27":                time.Date(2026, 11, 26, 23, 0, 0, 0, time.UTC),
		"90m":                       time.Date(2026, 11, 27, 9, 30, 0, 0, time.UTC),
		"2d":                        time.Date(2026, 11, 25, 11, 0, 0, 0, time.UTC),
	} {
		if ms, ok := parseMoment(text, now); !ok || ms != want.UnixMilli() {
			t.Errorf("%s: %v, %v; want %v", text, time.UnixMilli(ms).UTC(), ok, want.UTC())
		}
	}
	for _, text := range []string{"", "-1", "-1h", "yesterday", "1w", "2026-13-01"} {
		if ms, ok := parseMoment(text, now); ok {
			t.Errorf("%q: %d", text, ms)
		}
	}
}
