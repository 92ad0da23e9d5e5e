package ingest

import (
	"strconv"
	"strings"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/refusal"
)

// wholeMS is a whole number of milliseconds, nil if the text is none.
func wholeMS(text string) *int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > wire.MaxTS || text[0] == '+' {
		return nil
	}
	return &n
}

// timeMS is a time in milliseconds since the epoch, from a number or the format of RFC 3339.
func timeMS(text string) *int64 {
	if t, err := time.Parse(time.RFC3339Nano, strings.ToUpper(text)); err == nil && t.UnixMilli() >= 0 {
		ms := t.UnixMilli()
		return &ms
	}
	return wholeMS(text)
}

// ttlMS reads a ttl in units of so many milliseconds.
func ttlMS(name, value string, unit int64) (int64, *wire.Error) {
	n, err := strconv.ParseUint(value, 10, 63)
	if err != nil || n < 1 || n > uint64(wire.MaxTTLMS/unit) {
		return 0, wire.Errorf(wire.BadRequest, "%s is %q; a whole number from 1 to %d is allowed",
			name, refusal.Shorten(value), wire.MaxTTLMS/unit)
	}
	return int64(n) * unit, nil
}

func errBatchTooLarge(lim wire.Limits) *wire.Error {
	return wire.Errorf(wire.PayloadTooLarge, "the batch holds more than the %d events that are allowed (--limits batch)", lim.BatchEvents)
}

// errEmptyBatch refuses a batch without events.
func errEmptyBatch() *wire.Error {
	return wire.Errorf(wire.BadRequest, "the batch is empty: at least one event is needed")
}
