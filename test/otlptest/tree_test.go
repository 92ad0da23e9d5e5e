package otlptest

import (
	"strings"
	"testing"
	"time"
)

var began = time.Unix(1_700_000_000, 0)

// span makes one that began after ms milliseconds and took as many.
func span(trace, id, parent, name, kind string, ms int, links ...Ref) Span {
	at := began.Add(time.Duration(ms) * time.Millisecond)
	return Span{
		Ref: Ref{trace, id}, Parent: parent, Name: name, Kind: kind, Service: "shop", Instance: "a",
		Start: at, End: at.Add(time.Duration(ms) * time.Millisecond), Links: links,
		Attributes: Attributes{"messaging.message.id": "m" + id},
	}
}

func wantTree(t *testing.T, d Drawing, spans []Span, want string) {
	t.Helper()
	if got, want := d.Tree(spans), strings.TrimPrefix(want, "\n"); got != want {
		t.Errorf("drew\n%swant\n%s", got, want)
	}
}

func TestTree(t *testing.T) {
	failed := span("t1", "5", "3", "settle", "client", 9)
	failed.Failed, failed.Message, failed.Events = true, "stale", []string{"redelivered"}
	spans := []Span{
		span("t1", "3", "2", "process orders", "consumer", 5),
		failed,
		span("t1", "2", "1", "send orders", "producer", 1, Ref{"t2", "9"}, Ref{"t2", "9"}, Ref{"t1", "404"}),
		span("t1", "4", "2", "process orders", "consumer", 4),
		span("t1", "1", "", "checkout", "internal", 0),
		span("t2", "9", "8", "append", "internal", 2, Ref{"t2", "10"}),
		span("t2", "10", "9", "write", "client", 3),
	}
	wantTree(t, Drawing{}, spans, `
checkout
└─ send orders (producer)
   │  ⇢ 2 × append, in another trace
   │  ⇢ a span that was not received
   ├─ process orders (consumer)
   └─ process orders (consumer)
      └─ settle (client) !redelivered failed: stale

append … under a span that was not received
│  ⇢ write
└─ write (client)
`)
	wantTree(t, Drawing{Services: true, Times: true, ByName: true, Attributes: []string{"messaging.message.id=id", "none"}}, spans[:4], `
send orders (producer) shop/a id=m2 +0s 1ms … under a span that was not received
│  ⇢ 2 × a span that was not received, in another trace
│  ⇢ a span that was not received
├─ process orders (consumer) shop/a id=m3 +4ms 5ms
│  └─ settle (client) shop/a id=m5 !redelivered failed: stale +8ms 9ms
└─ process orders (consumer) shop/a id=m4 +3ms 4ms
`)
}

func TestTreeOfNothing(t *testing.T) {
	wantTree(t, Drawing{}, nil, "")
}
