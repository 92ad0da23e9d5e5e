package replay

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"reflect"
	"slices"
	"testing"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/test/require"
)

// sampleCursors has one of each shape.
func sampleCursors() []cursor {
	return []cursor{
		{view: view{topic: "orders", scope: scopeStore, from: wire.FromEarliest}, last: eventlog.Point{TS: 1723140000000, ID: "0197"}},
		{view: view{topic: "o", scope: scopeFleet, key: "kunde-ü", desc: true, from: wire.FromTS, start: eventlog.Point{TS: 5}},
			last: eventlog.Point{TS: 7, ID: "x"}},
		{view: view{topic: "orders", scope: scopeFleet, from: wire.FromEarliest}, last: eventlog.Point{TS: 9, ID: "x"},
			behind: []Behind{{Part: "3a0c", At: &eventlog.Point{TS: 7, ID: "y"}}, {Part: "node-3"}}},
		{view: view{topic: "_x.dlq", scope: scopeStore, from: wire.FromAfterID, start: eventlog.Point{TS: 0, ID: "a"}},
			last: eventlog.Point{TS: wire.MaxTS, ID: "b"}},
	}
}

func TestCursorComesBack(t *testing.T) {
	for _, c := range sampleCursors() {
		if got, err := decodeCursor(c.encode()); err != nil || !reflect.DeepEqual(got, c) {
			t.Errorf("%+v came back as %+v, %v", c, got, err)
		}
	}
}

// TestCursorsOfEarlierVersionsAreTaken has what version 1 gave out.
func TestCursorsOfEarlierVersionsAreTaken(t *testing.T) {
	for text, want := range map[string]cursor{
		"AQAAAICkrrKmZAQwMTk3Bm9yZGVycwBX8yvc": sampleCursors()[0],
		"AQcKAA4BeAFvCGt1bmRlLcO8g0faAg":       sampleCursors()[1],
	} {
		if got, err := decodeCursor(text); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
}

// TestCursorOfAStoreHasNoParts: nobody but a fleet has any behind.
func TestCursorOfAStoreHasNoParts(t *testing.T) {
	c := sampleCursors()[0]
	c.behind = []Behind{{Part: "node-3"}}
	if _, err := decodeCursor(c.encode()); err == nil {
		t.Error("taken")
	}
}

// TestCursorOfTooManyPartsIsRefused: each part is compared with each, so one that somebody made up,
// as long as a request can be, would keep the sidecar busy.
func TestCursorOfTooManyPartsIsRefused(t *testing.T) {
	c := sampleCursors()[2]
	c.behind = slices.Repeat(c.behind, maxCursorBytes/len(c.encode()))
	if _, err := decodeCursor(c.encode()); err != nil {
		t.Errorf("%d bytes: %v", len(c.encode()), err)
	}
	c.behind = slices.Repeat(c.behind, 8)
	if s := c.encode(); len(s) <= maxCursorBytes {
		t.Fatalf("%d bytes are not too many", len(s))
	} else if _, err := decodeCursor(s); err == nil {
		t.Errorf("%d bytes: taken", len(s))
	}
}

func TestEveryMangledCursorIsRefused(t *testing.T) {
	for _, c := range sampleCursors() {
		s := c.encode()
		for i := range len(s) {
			if _, err := decodeCursor(s[:i]); err == nil {
				t.Errorf("%q: taken when cut at %d", s, i)
			}
			other := byte('A')
			if s[i] == other {
				other = 'B'
			}
			if _, err := decodeCursor(s[:i] + string(other) + s[i+1:]); err == nil {
				t.Errorf("%q: taken with another character at %d", s, i)
			}
			if _, err := decodeCursor(s[:i] + "\n" + s[i:]); err == nil {
				t.Errorf("%q: taken with a line break at %d", s, i)
			}
		}
	}
}

// FuzzDecodeCursor takes any bytes, and puts the right sum behind them so that what lies behind
// that check is reached as well.
func FuzzDecodeCursor(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{cursorVersion})
	f.Add([]byte{cursorVersionBehind, 0})
	f.Add([]byte{cursorVersionBehind + 1, 0})
	for _, c := range sampleCursors() {
		b, err := base64.RawURLEncoding.DecodeString(c.encode())
		require.NoError(f, err)
		f.Add(b[:len(b)-4])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		summed := binary.BigEndian.AppendUint32(slices.Clip(b), crc32.Checksum(b, castagnoli))
		for _, s := range []string{string(b), base64.RawURLEncoding.EncodeToString(b), base64.RawURLEncoding.EncodeToString(summed)} {
			if c, err := decodeCursor(s); err == nil && c.encode() != s {
				t.Fatalf("%q was taken, but is written %q", s, c.encode())
			}
		}
	})
}
