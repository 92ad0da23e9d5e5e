package contract

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/sluice-bus/sluice/test/testkit"
)

// "the latest event of each key by seq … then one line {"positions":…}. SUBSCRIBE (and pull,
// stream) with opts.from:"positions" and these positions goes on right there: no gap, no overlap",
// on a topic that is compacted meanwhile.
func TestLatestAndLive(t *testing.T) {
	t.Parallel()
	s := own(t, `
- name: "*"
  publish: {rate: 0}
  connection: {rate: 0}
- name: table
  partitions: 4
  retention: {compact: true}
`, "--retention-interval", "50ms")
	k := s.dial(t)
	const keys, rounds = 20, 40
	whole := map[string]string{}
	write := func(round int) {
		for i := range keys {
			id, key, payload := fmt.Sprintf("%d-%d", round, i), fmt.Sprintf("k%d", i), fmt.Sprintf(`{"n":%d}`, round)
			if whole[key] = payload; (round+i)%7 == 0 {
				payload = "null"
				delete(whole, key)
			}
			k.ok(`{"op":"PUBLISH","topic":"table","payload":%s,"opts":{"id":%q,"key":%q}}`, payload, id, key)
		}
	}
	for round := range rounds {
		write(round)
	}
	a := testkit.Call(t, "GET", s.URL()+"/v1/topics/table/latest", "")
	lines := bytes.Split(bytes.TrimSuffix(a.Body, []byte("\n")), []byte("\n"))
	if a.Status != 200 || len(lines) != len(whole)+1 {
		t.Fatalf("%d: %d lines for %d keys", a.Status, len(lines), len(whole))
	}
	got, highest := map[string]string{}, map[string]int64{}
	apply := func(e object) {
		p := e.Text("partition")
		if seq := e.Number(t, "seq"); seq <= highest[p] {
			t.Errorf("%v comes again, or late", e)
		} else {
			highest[p] = seq
		}
		payload, _ := json.Marshal(e["payload"])
		if got[e.Text("key")] = string(payload); e["payload"] == nil {
			delete(got, e.Text("key"))
		}
	}
	for _, line := range lines[:len(lines)-1] {
		e := testkit.ParseObject(t, line)
		clear(highest) // these come in no order
		apply(e)
	}
	positions := testkit.ParseObject(t, lines[len(lines)-1])["positions"].(map[string]any)
	if len(positions) != 4 {
		t.Errorf("positions %v", positions)
	}
	same := func() {
		t.Helper()
		if fmt.Sprint(got) != fmt.Sprint(whole) {
			t.Errorf("the table is %v; want %v", got, whole)
		}
	}
	same()
	write(rounds)
	clear(highest)
	text, _ := json.Marshal(positions)
	for p, seq := range positions {
		highest[p] = testkit.Object{"seq": seq}.Number(t, "seq")
	}
	k.ok(`{"op":"SUBSCRIBE","topic":"table","opts":{"from":"positions","positions":%s}}`, text)
	for range keys {
		apply(k.event()["event"].(map[string]any))
	}
	same()
	if a := testkit.Call(t, "POST", s.URL()+"/v1/topics/table/groups/g/pull",
		fmt.Sprintf(`{"max":1000,"opts":{"from":"positions","positions":%s}}`, text)); len(a.JSON(t).List("events")) != keys {
		t.Errorf("pulled %s", a.Body)
	}
}
