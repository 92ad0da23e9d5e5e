package codec

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// golden is what stores hold on disk and in databases. A test here that fails shows a change of the
// format, not of the expectations: an event kept by an older sidecar would count as different from
// its own repetition.
const golden = "testdata/contenthash.txt"

// TestContentHashNeverChanges compares with the hashes in the golden file: one line for each event,
// its hash and its description.
func TestContentHashNeverChanges(t *testing.T) {
	f, err := os.Open(golden)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	want := map[string]string{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		hash, name, _ := strings.Cut(lines.Text(), " ")
		want[name] = hash
	}
	seen := map[string]bool{}
	for _, c := range goldenEvents() {
		if seen[c.name] {
			t.Errorf("two events are called %s", c.name)
		}
		seen[c.name] = true
		sum := ContentHash(&c.event)
		if got := hex.EncodeToString(sum[:]); got != want[c.name] {
			t.Errorf("%s hashes to\n%s; %s says\n%s", c.name, got, golden, want[c.name])
		}
	}
	if len(seen) != len(want) {
		t.Errorf("%d events; %s has %d", len(seen), golden, len(want))
	}
}

// TestContentHashesOfManyNeverChange takes one hash over those of many events that a fixed sequence
// of numbers makes up.
func TestContentHashesOfManyNeverChange(t *testing.T) {
	const want = "ff47cba25fb73c6c2a5c3c99f7d579a50b2a2460bd15d15a3c39647452a8d268"
	all := sha256.New()
	for i := range 2000 {
		m := maker(i)
		e := m.event()
		sum := ContentHash(&e)
		all.Write(sum[:])
	}
	if got := hex.EncodeToString(all.Sum(nil)); got != want {
		t.Errorf("the hash over all is\n%s; it was\n%s", got, want)
	}
}

type goldenEvent struct {
	name  string
	event wire.Event
}

func goldenEvents() []goldenEvent {
	events := []goldenEvent{
		{"nothing", wire.Event{}},
		{"what does not count", wire.Event{ID: "i", TS: 1, Topic: "t", Partition: 2, Seq: 3, Tags: []string{"x"}, CausedBy: []string{"y"},
			SID: "s", Spooled: true}},
		{"key", wire.Event{Key: "customer-17", Payload: []byte(`1`)}},
		{"long key", wire.Event{Key: strings.Repeat("kéy", 128), Payload: []byte(`1`)}},
		{"key that is not UTF-8", wire.Event{Key: "\xff\x00", Payload: []byte(`1`)}},
		{"one header", wire.Event{Headers: wire.Headers{{Name: "source", Value: "shop"}}, Payload: []byte(`1`)}},
		{"sorted headers", wire.Event{Headers: wire.Headers{{Name: "a", Value: "1"}, {Name: "b", Value: "2"},
			{Name: "c", Value: ""}}, Payload: []byte(`1`)}},
		{"unsorted headers", wire.Event{Headers: wire.Headers{{Name: "c", Value: "1"}, {Name: "B", Value: "2"}, {Name: "a", Value: "3"},
			{Name: "", Value: "4"}, {Name: "aa", Value: "5"}}, Payload: []byte(`1`)}},
		{"one header again", wire.Event{Headers: wire.Headers{{Name: "a", Value: "2"}, {Name: "a", Value: "1"},
			{Name: "a", Value: "2"}}, Payload: []byte(`1`)}},
		{"trace headers", wire.Event{Headers: wire.Headers{{Name: "traceparent", Value: "x"}, {Name: "tracestate", Value: "y"},
			{Name: "baggage", Value: "z"}}, Payload: []byte(`1`)}},
		{"trace headers and others", wire.Event{Headers: wire.Headers{{Name: "traceparent", Value: "x"}, {Name: "z", Value: "1"},
			{Name: "tracestate", Value: "y"}, {Name: "Baggage", Value: "2"}, {Name: "baggage", Value: "z"},
			{Name: "traceparent2", Value: ""}}, Payload: []byte(`1`)}},
		{"long header", wire.Event{Headers: wire.Headers{{Name: "x", Value: strings.Repeat("long ", 4000)}}, Payload: []byte(`1`)}},
		{"no bytes", wire.Event{Binary: true}},
		{"bytes", wire.Event{Binary: true, Payload: []byte("\x00\xff{}")}},
		{"bytes that are JSON", wire.Event{Binary: true, Payload: []byte(`{"b":1.0,"a":2}`)}},
		{"many bytes", wire.Event{Binary: true, Key: "k", Payload: []byte(strings.Repeat("\x01\xfe", 50_000))}},
		{"order", wire.Event{Key: "customer-17", Headers: wire.Headers{{Name: "traceparent",
			Value: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}}, Payload: []byte(orderPayload)}},
	}
	many := wire.Event{Payload: []byte(`[]`)}
	for i := range 64 {
		many.Headers = append(many.Headers, wire.Header{Name: fmt.Sprint("h", (i*37)%64), Value: fmt.Sprint(i)})
	}
	events = append(events, goldenEvent{"many headers", many})
	for _, text := range goldenTexts() {
		events = append(events, goldenEvent{excerpt(text), wire.Event{Payload: []byte(text)}})
	}
	return events
}

// excerpt is a text's name in the golden file: the text, or where that is long its start, its end
// and its length.
func excerpt(text string) string {
	if len(text) > 70 {
		return fmt.Sprintf("%+q…%+q %d bytes", text[:30], text[len(text)-20:], len(text))
	}
	return fmt.Sprintf("%+q", text)
}

// wide is an object of n members whose names are not in order.
func wide(n int, format, rest string) string {
	var b strings.Builder
	b.WriteByte('{')
	for i := range n {
		fmt.Fprintf(&b, format+`:%d,`, (i*7919)%n, i)
	}
	return b.String() + rest + "}"
}

func goldenTexts() []string {
	texts := []string{
		`0`, `1`, `-1`, `10`, `100`, `-120`, `2147483647`, `2147483648`, `-2147483648`, `9007199254740993`, `9223372036854775807`,
		`-9223372036854775808`,
		`9223372036854775808`, `18446744073709551616`, `10000000000000000000`, `123456789012345678901234567890123456789`, `999999999999999999`,
		`1000000000000000000`,
		strings.Repeat("9", 1000), "1" + strings.Repeat("0", 7000), "-1" + strings.Repeat("0", 300) + "1",
		`-0.0`, `0.0`, `0e0`, `0E-99999999999999999999`, `-0e99999`, `0.000e5`,
		`1.0`, `1e2`, `1E+2`, `1e-2`, `1e0`, `1e00`, `1e-0`, `1e+007`, `4.35`, `1.10`, `0.30000000000000004`, `-1.5e-7`, `123456789.123456789`,
		`0.001`, `0.0100`, `100.001`, `100.00`, `1234.56`, `-19.99`,
		`10.50e1`, `10.50e-1`, `0.5e1`, `0.05e2`, `50e-1`, `1.5e10`, `1e10`, `1e9`, `10e9`, `99e99`, `1e99`, `1e100`, `10e99`, `1e-99`,
		`0.1e-99`, `1e-100`, `1e1000`, `1e-1000`, `12e-3`, `120e-3`, `1200e-2`,
		`3.14159265358979323846`, `123456789012345678901234567890.5`, `5e-324`, `1.7976931348623159e308`, `1e-6177`, `0.` + strings.Repeat("0",
			200) + `1`, `0.` + strings.Repeat("1", 300) + `e250`,
		`1e99999999999999999`, `1e999999999999999999`, `10e999999999999999999`, `1e9999999999999999999`, `10e9999999999999999999`,
		`0.1e9999999999999999999`, `1e-9999999999999999999`, `10e-9999999999999999999`, `0.1e-9999999999999999999`,
		`1e1000000000000000000`, `0.1e1000000000000000000`, `10e-1000000000000000000`, `1e000000000000000000000000012`,
		`1e-000000000000000000000000012`, `10e-1`, `1e` + strings.Repeat("9", 1000), `10e` + strings.Repeat("9", 1000),
		`0.1e-` + strings.Repeat("9", 1000),
		`"x"`, `"a longer text that has nothing to escape in it"`, `"\u0000"`, `"a\u0000b"`, `"\u0001\b\f\n\r\t\u001f\u007f"`, `"\"\\\/"`,
		`"\u00e9 é \u2028"`, `"\uFFFD"`, `"\uffff"`, `"\u007f\u0080\u07ff\u0800"`,
		`"x\ud83dy"`, `"\ud83d\ud83d\ude00"`, `"\ud83dx\ude00"`, `"\ud83d\n"`, `"\ud83d\u0041"`, `"\udfff"`, `"$set"`, `"<script>&amp;"`,
		`"` + strings.Repeat("x", 127) + `"`, `"` + strings.Repeat("x", 128) + `"`, `"` + strings.Repeat(`\n`, 20_000) + `"`,
		`{"z":1,"a":2,"m":3}`, `{"a":2,"m":3,"z":1}`, `{"a":1,"a":1}`, `{"b":0,"a":1,"a":2,"b":3}`, `{"a":1,"\u0061":2}`, `{"\u0061":2,"a":1}`,
		`{"a":{"b":1,"c":2,"b":3}}`, `{"b":{"b":1},"a":{"a":1}}`,
		`{"":1}`, `{"a":1,"":2}`, `{"a\u0000":1,"a":2}`, `{"a":1,"a\u0000":2}`, `{"a\u0000\u0000":1,"a\u0000":2}`,
		`{"\ud800":1,"😀":2,"\uffff":3,"é":4}`, `{"é😀\n\"":1,"e":2}`, `{" ":1,"\t":2}`, `{"10":1,"9":2,"1":3}`,
		`{"samestart2":1,"samestart1":2,"samestar":3,"samestart":4,"samesta":5}`, `{"samestart\u0031":1,"samestart1":2,"samestart\u0030":3}`,
		`{"longername\n2":1,"longername\n1":{"x\ty":1,"x\tx":[{"\\":1,"\/":2}]}}`,
		`{"b":{"d":[{"f":1,"e":2},{"h":3,"g":4}],"c":5},"a":{"j":{},"i":[]}}`, `{"b":[[[]],[{}]],"a":[[],[[1,2],3]]}`,
		wide(12, `"m%d"`, `"x":1`), wide(13, `"member%d"`, `"member5":1`), wide(19, `"m%d"`, `"a":1`), wide(20, `"member%02d"`, `"member10":1`),
		wide(21, `"a name%d"`, `"x":1`), wide(31, `"member%d"`, `"member5":1`),
		wide(255, `"m%d"`, `"m1":1`), wide(256, `"m%d"`, `"m1":1`), wide(300, `"member%d"`, `"member0":1`), wide(300, `"m\u00e9mber%d"`,
			`"mémber7":1`), wide(2000, `"a%d"`, `"a0":{}`),
		`{"` + strings.Repeat("n", 200) + `":1,"` + strings.Repeat("n", 199) + `":2}`, `{` + strings.Repeat(`"same":1,`, 30) + `"same":2}`,
		`{` + strings.Repeat(`"same":1,"other":[2],`, 30) + `"same":2}`,
		strings.Repeat(`{"b":`, 63) + "1" + strings.Repeat(`,"a":2}`, 63), strings.Repeat(`{"b":[`, 64) + strings.Repeat(`],"a":2}`, 64),
		strings.Repeat(`{"b":[`, 300) + strings.Repeat(`],"a":2}`, 300),
		strings.Repeat("[", 64) + strings.Repeat("]", 64), strings.Repeat("[", 65) + strings.Repeat("]", 65), strings.Repeat("[",
			5000) + strings.Repeat("]", 5000),
		`[` + strings.Repeat("1,", 2000) + `1]`, `[` + strings.Repeat(`{"b":1.50,"a":"x"},`, 500) + `{}]`,
		"{ \"b\" : [ 1 ,\n 2 ] ,\t\"a\" : { } }", " \r\n1 ",
		`{"b":1,"a":2`, `{"b":1,"a":2}}`, `{"b":1,"a":}`, `["\ud8"]`, "{\"\xff\":1}", "\"\xc3\"", `{"b":1,"a":01}`, "\x00", `{"a" :1,"b"}`,
		`[}`, strings.Repeat("[", 100), strings.Repeat(`{"a":`, 100) + `}`, `nulls`, `-`, `{"b":1,"a":-}`,
	}
	texts = append(texts, nasty...)
	for _, b := range broken {
		texts = append(texts, b.text)
	}
	slices.Sort(texts)
	return slices.Compact(texts)
}

// maker makes up events from the sequence of numbers known as SplitMix64 (Steele, Lea, Flood 2014),
// which no release of Go changes.
type maker uint64

func (m *maker) below(n int) int {
	*m += 0x9E3779B97F4A7C15
	z := uint64(*m)
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return int((z ^ z>>31) % uint64(n))
}

func pick[T any](m *maker, from ...T) T { return from[m.below(len(from))] }

func (m *maker) event() (e wire.Event) {
	e.Key = pick(m, "", "k", "key")
	for range m.below(4) {
		e.Headers = append(e.Headers, wire.Header{Name: pick(m, "a", "b", "traceparent", "baggage", "B"), Value: pick(m, "", "1", "2")})
	}
	e.Payload = m.json(nil, 4)
	switch m.below(40) {
	case 0:
		e.Binary = true
	case 1: // most often not JSON any more
		e.Payload = e.Payload[:len(e.Payload)-m.below(len(e.Payload))]
	case 2:
		e.Payload[m.below(len(e.Payload))] ^= byte(1 << m.below(8))
	}
	return e
}

func (m *maker) json(b []byte, depth int) []byte {
	if m.below(8) == 0 {
		b = append(b, ' ')
	}
	switch kind := m.below(10); {
	case kind < 3 && depth > 0:
		b = append(b, '{')
		for i := range m.below(pick(m, 4, 4, 8, 40)) {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(m.text(b), ':')
			b = m.json(b, depth-1)
		}
		return append(b, '}')
	case kind < 4 && depth > 0:
		b = append(b, '[')
		for i := range m.below(5) {
			if i > 0 {
				b = append(b, ',')
			}
			b = m.json(b, depth-1)
		}
		return append(b, ']')
	case kind < 6:
		return m.text(b)
	case kind < 7:
		return append(b, pick(m, "true", "false", "null")...)
	}
	return m.number(b)
}

func (m *maker) text(b []byte) []byte {
	b = append(b, '"')
	for range m.below(pick(m, 3, 3, 15)) {
		b = append(b, pick(m, "a", "b", "c", "é", "😀", "name", `\n`, `\u0061`, `\u0000`, `\ud83d`, `\ude00`, `\/`, "\uffff")...)
	}
	return append(b, '"')
}

func (m *maker) number(b []byte) []byte {
	digits := func(most int) {
		for range 1 + m.below(most) {
			b = append(b, pick(m, '0', '0', '9', byte('0'+m.below(10))))
		}
	}
	b = append(b, pick(m, "", "", "-")...)
	if m.below(3) == 0 {
		b = append(b, '0')
	} else {
		b = append(b, byte('1'+m.below(9)))
		if m.below(2) == 0 {
			digits(pick(m, 3, 25))
		}
	}
	if m.below(2) == 0 {
		b = append(b, '.')
		digits(pick(m, 3, 25))
	}
	if m.below(3) == 0 {
		b = append(b, pick(m, "e", "E", "e-", "e+")...)
		digits(pick(m, 2, 4, 22))
	}
	return b
}
