package admit_test

import (
	"context"
	"reflect"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/writer"
)

// withSchema has a schema on the topics shop.…, except for the one without, and few tokens.
const withSchema = `[
  {name: "*", connection: {rate: 0.001, burst: 8}},
  {name: "shop.*", publish: {rate: 0.001, burst: 6}, schema: {json_schema: {type: object, required: [id], properties: {id: {type: integer}, "a/b": {maxLength: 1}}}}},
  {name: shop.any, schema: {json_schema: null}},
]`

func with(topic, payload string) wire.PublishItem {
	return wire.PublishItem{Event: wire.Event{Topic: topic, Payload: []byte(payload)}}
}

// Each event of a batch is held to the schema of its topic by itself. A refused event gives its
// tokens back.
func TestSchema(t *testing.T) {
	f := open(t, withSchema)
	binary := with("shop.orders", `{"id":1}`)
	binary.Event.Binary = true
	a := f.start(t.Context(),
		with("shop.orders", `{"id":12345678901234567890}`), with("shop.orders", `{"id":"1"}`), with("other", `"x"`),
		with("shop.any", `"x"`), with("shop.orders", `{}`), with("shop.orders", `{"id":1,"a/b":"xy"}`), binary, with("shop.orders", `7`))
	var got [][2]string
	for _, r := range a.ok(t) {
		if r.Err == nil {
			got = append(got, [2]string{"ok", ""})
			continue
		}
		got = append(got, [2]string{string(r.Err.Code), r.Err.Pointer})
		if !strings.Contains(r.Err.Msg, `topic "shop.orders"`) {
			t.Errorf("the sentence does not name the topic: %s", r.Err.Msg)
		}
	}
	want := [][2]string{{"ok", ""}, {"schema_violation", "/id"}, {"ok", ""}, {"ok", ""}, {"schema_violation", ""},
		{"schema_violation", "/a~1b"}, {"schema_violation", ""}, {"schema_violation", ""}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	if c, e, _ := f.Tokens(f.conn, "shop.orders"); c != 5 || e != 5 {
		t.Errorf("%d tokens of the connection and %d of the topic are left", c, e)
	}
	want2 := `sluice_events_rejected_total{code="schema_violation",topic="shop.orders"} 5`
	if lines := strings.Join(f.counted(), "\n"); !strings.Contains(lines, want2) {
		t.Errorf("counted:\n%s", lines)
	}
}

// A publish without a token is refused before its payload is validated, which takes time. An event
// that the schema refuses does not create the topic.
func TestLimitsComeBeforeTheSchema(t *testing.T) {
	f := open(t, withSchema)
	wrong := func(n int) (items []wire.PublishItem) {
		for range n {
			items = append(items, with("shop.orders", `{"id":"1"}`))
		}
		return items
	}
	for range 3 {
		for _, code := range f.publish(t, wrong(5)...) {
			if code != "schema_violation" {
				t.Errorf("within the limits: %s", code)
			}
		}
	}
	if len(f.log.ensured) != 0 {
		t.Errorf("the topics %q were made", f.log.ensured)
	}
	if got := f.publish(t, with("shop.orders", `{"id":1}`)); got[0] != "ok" {
		t.Errorf("after what was refused: %q", got)
	}
	if a := f.start(t.Context(), wrong(6)...); a.err == nil || a.err.Code != wire.RateLimited {
		t.Errorf("beyond the limits: %v", a.err)
	}
}

// A schema acts from the moment on in which its policy is in force, also on who has waited for
// tokens.
func TestSchemaIsSwappedWithItsPolicy(t *testing.T) {
	const waits = `{name: "a", publish: {rate: 0.001, burst: 1, on_limit: wait, max_wait: 1h}`
	f := open(t, `[`+waits+`}]`)
	if got := f.publish(t, with("a", "1")); got[0] != "ok" {
		t.Fatal(got)
	}
	waiting := make(chan answer)
	go func() { waiting <- f.start(context.Background(), with("a", `"x"`)) }()
	f.current.Swap(parse(t, `[{name: a, publish: {rate: 0}, schema: {json_schema: {type: number}}}]`))
	a := <-waiting
	if got := words(a.ok(t)); got[0] != "schema_violation" {
		t.Errorf("held to the schema: %q", got)
	}
	f.current.Swap(parse(t, `[{name: a, publish: {rate: 0}, schema: {json_schema: {type: string}}}]`))
	if got := f.publish(t, with("a", `"x"`), with("a", "1")); !reflect.DeepEqual(got, []string{"ok", "schema_violation"}) {
		t.Errorf("by the next schema: %q", got)
	}
	f.current.Swap(parse(t, `[{name: a, publish: {rate: 0}}]`))
	if got := f.publish(t, with("a", "1")); got[0] != "ok" {
		t.Errorf("without a schema: %q", got)
	}
}

// The sidecar ignores a publisher's schema version header, and does not change the publisher's
// event.
func TestSchemaVersion(t *testing.T) {
	f := open(t, withSchema)
	given := wire.Headers{{Name: "a", Value: "1"}, {Name: wire.HeaderSchemaVersion, Value: "99"}}
	held, free := with("shop.orders", `{"id":1}`), with("shop.any", `7`)
	held.Event.Headers, free.Event.Headers = given, given
	if got := f.publish(t, held, free, with("shop.orders", `{"id":2}`),
		with("other", `1`)); !reflect.DeepEqual(got, []string{"ok", "ok", "ok", "ok"}) {
		t.Fatal(got)
	}
	got := map[string]wire.Headers{}
	for _, r := range f.log.records {
		got[r.Topic+string(r.Payload)] = r.Headers
	}
	version := wire.Header{Name: wire.HeaderSchemaVersion, Value: "1"}
	want := map[string]wire.Headers{`shop.orders{"id":1}`: {given[0], version}, `shop.any7`: {given[0]}, `shop.orders{"id":2}`: {version},
		`other1`: nil}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
	if given[1].Value != "99" {
		t.Error("the publisher's headers were changed")
	}
}

// BenchmarkSchema measures validation, which costs nothing for a topic without a schema.
func BenchmarkSchema(b *testing.B) {
	for _, bench := range []struct{ name, topic string }{{"none", "a"}, {"small", "schema"}} {
		b.Run(bench.name, func(b *testing.B) {
			f := newFixture(b, generous[:len(generous)-1]+`, {name: schema, schema: {json_schema: {type: object, required: [id, total], `+
				`properties: {id: {type: string}, total: {type: number, minimum: 0}}}}}]`,
				&fakeLog{forget: true}, writer.DefaultBounds())
			batch := make([]wire.PublishItem, 100)
			for i := range batch {
				batch[i] = with(bench.topic, `{"id":"o-17","total":17.50,"lines":[{"sku":"x","n":1}]}`)
			}
			answered := make(chan struct{}, 1)
			done := func([]wire.ResultItem) { answered <- struct{}{} }
			b.ReportAllocs()
			for b.Loop() {
				if err := f.Publish(b.Context(), f.conn, batch, done); err != nil {
					b.Fatal(err)
				}
				<-answered
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(batch)), "ns/event")
		})
	}
}
