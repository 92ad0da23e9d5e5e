package ingest

import (
	"bufio"
	"bytes"
	"net/http"
	"net/textproto"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
)

// FuzzItemOf: the event of any request is within the limits, or is refused with a code of the
// contract. An accepted event can be written and read again.
func FuzzItemOf(f *testing.F) {
	f.Add("Sluice-Id: a\r\nSluice-Key: k\r\nSluice-Ts: 5\r\n", []byte(`{"a":1}`))
	f.Add("Idempotency-Key: a\r\nSluice-Header-X: 1\r\nSluice-Header-x: 2\r\n", []byte(`1`))
	f.Add("Content-Type: text/plain\r\nSluice-Header-Content-Type: x\r\n", []byte("\xff"))
	f.Add("Traceparent: 00-a\r\nTracestate: a\r\nTracestate: b\r\nBaggage: \xff\r\n", []byte(`[]`))
	f.Add("Content-Type: a/b+json; q=\"\r\nSluice-Ts: +1\r\n", []byte(`"\ud800"`))
	f.Add("Sluice-Header-: x\r\nSluice-Ts: 99999999999999999999\r\n", []byte(``))
	f.Fuzz(func(t *testing.T, text string, payload []byte) {
		mime, err := textproto.NewReader(bufio.NewReader(strings.NewReader(text + "\r\n"))).ReadMIMEHeader()
		if err != nil {
			return // net/http refuses it
		}
		h, lim := http.Header(mime), smallLimits()
		head, bad := readHead(h)
		if bad != nil {
			wantCode(t, bad)
			return
		}
		if head.kind == linesBody {
			items, bad := itemsOf("t", &head, payload, lim)
			if bad != nil {
				wantCode(t, bad)
			} else if len(items) == 0 || len(items) > lim.BatchEvents {
				t.Fatalf("a batch of %d", len(items))
			}
			return
		}
		it, bad := itemOf("t", &head, payload, lim)
		if bad != nil {
			wantCode(t, bad)
			return
		}
		e := &it.Event
		if len(e.Payload) > lim.PayloadBytes || len(e.Key) > lim.KeyBytes || len(e.Headers) > lim.HeaderCount ||
			e.Headers.Size() > lim.HeaderBytes {
			t.Fatalf("over the limits: %+v", e)
		}
		if e.ID == "" {
			e.ID = "made"
		}
		written := codec.AppendEventJSON(nil, e)
		again, err := codec.ParseEvent(written)
		if err != nil || !utf8.Valid(written) {
			t.Fatalf("%s: %v", written, err)
		}
		if again.Key != e.Key || again.TS != e.TS || again.Binary != e.Binary || !bytes.Equal(again.Payload, e.Payload) ||
			len(again.Headers) != len(e.Headers) {
			t.Fatalf("%+v became %+v", e, again)
		}
	})
}

func wantCode(t *testing.T, err *wire.Error) {
	t.Helper()
	switch err.Code {
	case wire.BadRequest, wire.BadJSON, wire.PayloadTooLarge:
	default:
		t.Fatalf("code %s", err.Code)
	}
	if err.Msg == "" {
		t.Fatal("no sentence")
	}
}

// smallLimits keep the inputs that exceed them short.
func smallLimits() wire.Limits {
	return wire.Limits{
		PayloadBytes: 100, HeaderCount: 4, HeaderBytes: 200, KeyBytes: 10,
		BatchEvents: 3, BatchBytes: 1000, FrameBytes: 4000, JSONDepth: 8,
	}
}
