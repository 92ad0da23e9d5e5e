package sluice

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
)

// TestAcksShareAFrame acks while nothing is written: acks of one subscription are one frame, unless something else is between
// them, they are many, or one may be refused. Each call gets its own answer.
func TestAcksShareAFrame(t *testing.T) {
	c := &Conn{}
	c.filled.L = &sync.Mutex{}
	s, other := &ConnSubscription{conn: c, topic: "t", group: "g"}, &ConnSubscription{conn: c, topic: "t", group: "h"}
	answers := map[string]error{}
	ack := func(s *ConnSubscription, ids ...string) {
		t.Helper()
		if err := s.AckAsync(func(err error) { answers[strings.Join(ids, "+")] = err }, ids...); err != nil {
			t.Fatal(err)
		}
	}
	ack(s, "a")
	ack(s, "b", "c")
	ack(s, "d")
	ack(other, "x")
	ack(s, "with space") // a bad id
	ack(s, "e")
	for i := range maxAckIDs {
		ack(s, fmt.Sprint(i))
	}
	var frames [][]string
	start := 0
	for _, end := range c.queue.ends {
		frame, err := codec.DecodeRequest(c.queue.bytes[start:end], wire.DefaultLimits())
		if bad := len(frames) == 2; (err != nil) != bad || frame.Op != wire.OpAck {
			t.Fatalf("%s: %v", c.queue.bytes[start:end], err)
		}
		slices.Sort(frame.IDs)
		frames = append(frames, frame.IDs)
		start = end
	}
	if len(frames) != 5 || !slices.Equal(frames[0], []string{"a", "b", "c", "d"}) || len(frames[3]) != maxAckIDs {
		t.Errorf("frames %q", frames)
	}
	stale := `{"op":"ERR","code":"stale_lease","msg":"m","ids":["c"],"corr":"0"}`
	for _, reply := range []string{stale, `{"op":"OK","corr":"1"}`, `{"op":"ERR","code":"bad_request","msg":"m","corr":"2"}`} {
		if err := c.handle([]byte(reply)); err != nil {
			t.Fatal(err)
		}
	}
	if len(answers) != 5 || answers["a"] != nil || answers["d"] != nil || answers["x"] != nil {
		t.Errorf("answers %v", answers)
	}
	for id, code := range map[string]wire.Code{"b+c": wire.StaleLease, "with space": wire.BadRequest} {
		if !errors.Is(answers[id], &wire.Error{Code: code}) {
			t.Errorf("the answer for %s is %v", id, answers[id])
		}
	}
}
