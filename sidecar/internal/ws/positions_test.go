package ws_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/sidecar/internal/gateway/gatewaytest"
)

// A subscription starts right behind the given positions, in each of the three ways to subscribe. A
// partition without a position starts at its first event.
func TestFromPositions(t *testing.T) {
	s := start(t, gatewaytest.Setup{Policies: `[{"name":"*","partitions":2,"publish":{"rate":0},"connection":{"rate":0}}]`})
	c := s.Dial(t)
	where := map[string]string{} // "partition/seq" to id
	heads := map[int]uint64{}
	for i := range 12 {
		ok := c.Ask(`{"op":"PUBLISH","topic":"t","payload":1,"opts":{"id":"e%d"}}`, i)
		where[fmt.Sprintf("%d/%d", *ok.Partition, ok.Seq)] = fmt.Sprintf("e%d", i)
		heads[*ok.Partition] = ok.Seq
	}
	if heads[0] < 2 || heads[1] < 2 {
		t.Fatalf("the partitions have %v events", heads)
	}
	want := map[string]bool{}
	for at, id := range where {
		if strings.HasPrefix(at, "1/") || at == fmt.Sprintf("0/%d", heads[0]) {
			want[id] = true
		}
	}
	positions := fmt.Sprintf(`{"0":%d}`, heads[0]-1)
	alone := c.Ask(`{"op":"SUBSCRIBE","topic":"t","opts":{"from":"positions","positions":%s}}`, positions)
	if alone.Positions["0"] != heads[0]-1 || alone.Positions["1"] != 0 {
		t.Errorf("it says that it starts behind %v", alone.Positions)
	}
	for range want {
		if ev := c.Want("EVENT"); !want[ev.Event.ID] {
			t.Errorf("%s came", ev.Event.ID)
		}
	}
	c.Ask(`{"op":"UNSUBSCRIBE","topic":"t"}`)
	_, text := s.Do(t, "POST", "/v1/topics/t/groups/g/pull",
		fmt.Sprintf(`{"opts":{"from":"positions","positions":%s,"autoAck":true}}`, positions))
	if n := strings.Count(text, `"seq":`); n != len(want) {
		t.Errorf("%d events are pulled; want %d: %s", n, len(want), text)
	}
	c.Ask(`{"op":"SUBSCRIBE","topic":"t","opts":{"from":"positions","positions":{}}}`) // all of the topic
	for range where {
		c.Want("EVENT")
	}
	c.Ask(`{"op":"UNSUBSCRIBE","topic":"t"}`)
	for _, bad := range []struct{ opts, want string }{
		{`{"from":"positions"}`, "positions is missing"},
		{`{"from":"positions","positions":[1]}`, "positions must be an object of whole numbers by partition"},
		{`{"from":"positions","positions":{"0":-1}}`, "positions must be an object of whole numbers by partition"},
		{`{"from":"positions","positions":{"00":1}}`, `positions: \"00\" is not the number of a partition`},
		{`{"from":"positions","positions":{"0":99}}`, "positions: partition 0 has seqs up to"},
		{`{"from":"positions","positions":{"7":1}}`, "has partitions 0 to 1, not 7"},
	} {
		c.Send(`{"op":"SUBSCRIBE","topic":"t","opts":%s}`, bad.opts)
		if f := c.Want("ERR/bad_request"); !strings.Contains(f.Msg, strings.ReplaceAll(bad.want, `\`, "")) {
			t.Errorf("%s: %s; want %s", bad.opts, f.Msg, bad.want)
		}
	}
}
