package load

import (
	"bytes"
	"strconv"
	"strings"
)

// A payload is {"t0":1723140000000000000,"pad":"xxx…"}: when it was (meant to be) published, in
// nanoseconds since the epoch, and what makes it long enough.
const (
	payloadHead = `{"t0":`
	t0Digits    = 19 // until the year 2286
	payloadPad  = `,"pad":"`
	payloadTail = `"}`

	// MinSize is the smallest payload there can be.
	MinSize = len(payloadHead) + t0Digits + len(payloadPad) + len(payloadTail)
)

// newPayload makes a payload of size bytes, or of MinSize if that is more.
func newPayload(size int) []byte {
	p := append([]byte(payloadHead), strings.Repeat("1", t0Digits)...)
	p = append(p, payloadPad...)
	p = append(p, strings.Repeat("x", max(size-MinSize, 0))...)
	return append(p, payloadTail...)
}

// stamp puts the time into a payload of newPayload's.
func stamp(payload []byte, t0 int64) {
	strconv.AppendInt(payload[len(payloadHead):len(payloadHead):len(payloadHead)+t0Digits], t0, 10)
}

// stamped returns the time in a payload, if it is one of the bench's.
func stamped(payload []byte) (t0 int64, ok bool) {
	digits, ok := bytes.CutPrefix(payload, []byte(payloadHead))
	if !ok {
		return 0, false
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			break
		}
		t0 = t0*10 + int64(c-'0')
	}
	return t0, t0 > 0
}
