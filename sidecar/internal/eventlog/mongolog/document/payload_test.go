package document

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/eventlogtest"
	"github.com/sluice-bus/sluice/test/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"
)

// Where a payload is expected to be kept.
type kept string

const (
	asBSON kept = "BSON"
	asRaw  kept = "raw bytes"
)

func deep(levels int) string {
	return strings.Repeat(`{"a":`, levels-1) + "[]" + strings.Repeat("}", levels-1)
}

// members is an object with n members, and then the rest.
func members(n int, rest string) string {
	var b strings.Builder
	b.WriteByte('{')
	for i := range n {
		fmt.Fprintf(&b, `"member%d":%d,`, i, i)
	}
	return b.String() + rest + "}"
}

var corpus = []struct {
	text string
	kept kept
}{
	// Scalars at the top.
	{`null`, asBSON}, {`true`, asBSON}, {`false`, asBSON}, {`0`, asBSON}, {`""`, asBSON}, {`"x"`, asBSON}, {`[]`, asBSON}, {`{}`, asBSON},
	// Whole numbers.
	{`2147483647`, asBSON}, {`2147483648`, asBSON}, {`-2147483648`, asBSON}, {`-2147483649`, asBSON},
	{`9007199254740991`, asBSON}, {`9007199254740992`, asBSON}, {`9007199254740993`, asBSON},
	{`9223372036854775807`, asBSON}, {`9223372036854775806`, asBSON}, {`-9223372036854775808`, asBSON}, {`-9223372036854775807`, asBSON},
	{`9223372036854775808`, asBSON}, {`-9223372036854775809`, asBSON}, {`12345678901234567890`, asBSON},
	{`10000000000000000000`, asBSON}, {`100000000000000000000000`, asBSON}, {`123456789012345678901234567890123456789`, asRaw},
	{`1234567890123456789012345678901234`, asBSON}, {`12345678901234567890123456789012345`, asRaw},
	{strings.Repeat("9", 1000), asRaw}, {"1" + strings.Repeat("0", 300), asBSON}, {"1" + strings.Repeat("0", 400), asBSON},
	{"1" + strings.Repeat("0", 7000), asRaw},
	// Zeros.
	{`-0`, asBSON}, {`-0.0`, asBSON}, {`0.0`, asBSON}, {`0e0`, asBSON}, {`0E-99999999999999999999`, asBSON}, {`-0e99999`, asBSON},
	// Fractions and exponents.
	{`1.0`, asBSON}, {`1e2`, asBSON}, {`1E+2`, asBSON}, {`1E2`, asBSON}, {`0.1`, asBSON}, {`4.35`, asBSON}, {`1.10`, asBSON},
	{`0.30000000000000004`, asBSON},
	{`-1.5e-7`, asBSON}, {`123456789.123456789`, asBSON}, {`1234567.12345678`, asBSON}, {`0.1000000000000000055511151231257827`, asBSON},
	{`0.1000000000000000055511151231257827021181583404541015625`, asRaw},
	{`3.141592653589793`, asBSON}, {`3.1415926535897932`, asBSON}, {`3.14159265358979323846`, asBSON}, {`9007199254740993.0`, asBSON},
	{`123456789012345678901234567890.5`, asBSON}, {`1e21`, asBSON}, {`1e22`, asBSON}, {`1e23`, asBSON}, {`1e-6`, asBSON}, {`1e-7`, asBSON},
	{`123456789012345680000`, asBSON},
	{`5e-324`, asBSON}, {`4.9e-324`, asBSON}, {`4.9406564584124654e-324`, asBSON}, {`2.2250738585072014e-308`, asBSON},
	{`2.225073858507201e-308`, asBSON},
	{`1.7976931348623157e308`, asBSON}, {`1.7976931348623158e308`, asBSON}, {`1.7976931348623159e308`, asBSON}, {`1e308`, asBSON},
	{`1e309`, asBSON},
	{`1e400`, asBSON}, {`-1e400`, asBSON}, {`1e-400`, asBSON}, {`1e6144`, asBSON}, {`1e6145`, asRaw}, {`1e-6176`, asBSON}, {`1e-6177`, asRaw},
	{`1e99999`, asRaw}, {`1e-99999`, asRaw}, {`1e9223372036854775808`, asRaw}, {`0.` + strings.Repeat("0", 200) + `1`, asBSON},
	// Strings.
	{`"\u0000"`, asBSON}, {`"a\u0000b"`, asBSON}, {`"\u0001\b\f\n\r\t\u001f\u007f"`, asBSON}, {`"\"\\\/"`, asBSON},
	{`"\u00e9 é \u2028"`, asBSON},
	{`"\ud83d\ude00"`, asBSON}, {`"😀"`, asBSON}, {`"\uFFFD"`, asBSON}, {`"\ud800"`, asRaw}, {`"\udc00\ud800"`, asRaw}, {`"x\ud83dy"`, asRaw},
	{`"\ud83d\ud83d\ude00"`, asRaw},
	{`{"a":["\udfff"]}`, asRaw}, {`"` + strings.Repeat("long ", 20_000) + `"`, asBSON}, {`"$set"`, asBSON}, {`"<script>&amp;"`, asBSON},
	// Names.
	{`{"z":1,"a":2,"m":3}`, asBSON}, {`{"a":1,"a":1}`, asRaw}, {`{"a":1,"\u0061":2}`, asRaw}, {`{"a":{"b":1,"c":2,"b":3}}`, asRaw},
	{`{"a":{"b":1},"b":{"a":1}}`, asBSON},
	{`{"":1}`, asRaw}, {`{"a":{"":1}}`, asRaw}, {`{"$set":1}`, asRaw}, {`{"a":[{"$ref":1}]}`, asRaw}, {`{"\u0024x":1}`, asRaw},
	{`{"a$":1}`, asBSON},
	{`{"a.b":1}`, asRaw}, {`{".":1}`, asRaw}, {`{"a\u002eb":1}`, asRaw}, {`{"a\u0000":1}`, asRaw}, {`{"\ud800":1}`, asRaw},
	{`{"é😀\n\"":1}`, asBSON}, {`{" ":1}`, asBSON},
	{`{"_id":1,"a":2}`, asBSON}, {`{"a":2,"_id":1}`, asBSON}, {`{"a":{"b":2,"_id":1}}`, asBSON}, {`{"0":1,"1":2}`, asBSON},
	{members(31, `"member5x":1`), asBSON}, {members(31, `"member5":1`), asRaw}, {members(40, `"x":1`), asBSON},
	{members(40, `"member39":1`), asRaw},
	{members(300, `"x":1`), asBSON}, {members(300, `"member0":1`), asRaw},
	{`{"a":` + members(300, `"x":1`) + `,"member7":` + members(40, `"x":1`) + `}`, asBSON},
	// Nesting.
	{`[1,"a",null,true,1.5,{"b":[]}]`, asBSON}, {`{"a":{},"b":{"c":{}},"d":[{},{"e":[]}]}`, asBSON}, {`[[]]`, asBSON},
	{`{"a":[1,[2]]}`, asBSON}, {`[{"a":[{"b":[1]}]}]`, asBSON},
	{`{"type":"Polygon","coordinates":[[[0,0],[1.5,0],[1,1],[0,0]]]}`, asBSON}, {deep(80), asBSON}, {deep(81), asRaw}, {deep(500), asRaw},
	{strings.Repeat("[", 80) + strings.Repeat("]", 80), asBSON}, {strings.Repeat("[", 81) + strings.Repeat("]", 81), asRaw},
	{`[` + strings.Repeat("1,", 2000) + `1]`, asBSON}, {`{"a":12345678901234567890,"b":[1]}`, asBSON},
}

func shown(text string) string {
	if len(text) > 60 {
		return fmt.Sprintf("%s… (%d bytes)", text[:60], len(text))
	}
	return text
}

func record(text string) *eventlog.Record {
	return &eventlog.Record{AcceptedAt: 2, Event: wire.Event{ID: "id-1", TS: 1, Topic: "t", Partition: 3, Seq: 4, Payload: []byte(text)}}
}

// there is the record's way into a document and back. It says which field the payload was in.
func there(t rapid.TB, r *eventlog.Record) (s Stored, field string) {
	doc, err := Append([]byte("before"), r.Topic, 0, r, 77)
	if err != nil {
		t.Fatalf("Append: %v", err)
	}
	doc = bytes.TrimPrefix(doc, []byte("before"))
	if err := bson.Raw(doc).Validate(); err != nil {
		t.Fatalf("not valid BSON: %v", err)
	}
	for _, f := range []string{FieldPayload, FieldPayloadJSON, FieldPayloadBytes} {
		if _, err := bson.Raw(doc).LookupErr(f); err == nil {
			field += f
		}
	}
	if s, err = Decode(doc); err != nil {
		t.Fatalf("Decode: %v", err)
	}
	clear(doc) // the driver may use the buffer again
	return s, field
}

func TestPayloadsReadBackEqual(t *testing.T) {
	for _, x := range corpus {
		r := record(x.text)
		s, field := there(t, r)
		if err := eventlogtest.SameJSON(r.Payload, s.Record.Payload); err != nil {
			t.Errorf("%s: %v", shown(x.text), err)
		}
		if !codec.SameContent(&r.Event, &s.Record.Event) || !bytes.Equal(s.Hash, hashOf(&r.Event)) ||
			!bytes.Equal(s.Hash, hashOf(&s.Record.Event)) {
			t.Errorf("%s: not the same content: %s", shown(x.text), shown(string(s.Record.Payload)))
		}
		want := FieldPayloadJSON
		if x.kept == asBSON {
			want = FieldPayload
		}
		if field != want {
			t.Errorf("%s: kept in %s; want %s", shown(x.text), field, want)
		}
		if field == FieldPayloadJSON && !bytes.Equal(s.Record.Payload, r.Payload) {
			t.Errorf("%s: became %s", shown(x.text), shown(string(s.Record.Payload)))
		}
	}
}

// TestPayloadsThatGetTooLarge: an array of small numbers takes far more bytes as BSON than as JSON.
func TestPayloadsThatGetTooLarge(t *testing.T) {
	for text, want := range map[string]bool{
		`[` + strings.Repeat("1,", 600_000) + `1]`:         true,
		`[` + strings.Repeat("0,", 800_000) + `0]`:         false,
		`"` + strings.Repeat("x", maxValueBytes-100) + `"`: true,
		`"` + strings.Repeat("x", maxValueBytes-3) + `"`:   false,
		`"` + strings.Repeat("x", maxValueBytes) + `"`:     false,
	} {
		dst, exact := appendValue(nil, FieldPayload, []byte(text))
		if exact != want || exact && len(dst) > maxValueBytes {
			t.Errorf("%s: exact is %v in %d bytes; want %v", shown(text), exact, len(dst), want)
		}
	}
}

func TestPayloadsHaveTheTypesThatPeopleExpect(t *testing.T) {
	doc, err := Append(nil, "t", 0, record(
		`{"i":1,"l":2147483648,"d":1.0,"m":12345678901234567890,"s":"x","n":null,"b":true,"o":{"a":[1,[2.5]]}}`), 1)
	require.NoError(t, err)
	for path, want := range map[string]any{
		"i": int32(1), "l": int64(2147483648), "d": 1.0, "s": "x", "b": true, "o.a.0": int32(1), "o.a.1.0": 2.5,
	} {
		var got any
		if err := bson.Raw(doc).Lookup(append([]string{FieldPayload}, strings.Split(path, ".")...)...).Unmarshal(&got); err != nil ||
			got != want {
			t.Errorf("%s: got %T %v, %v; want %T %v", path, got, got, err, want, want)
		}
	}
	if d, ok := bson.Raw(doc).Lookup(FieldPayload, "m").Decimal128OK(); !ok || d.String() != "1.234567890123456789E+19" {
		t.Errorf("the decimal is %v, %v", d, ok)
	}
	if v := bson.Raw(doc).Lookup(FieldPayload, "n"); v.Type != bson.TypeNull {
		t.Errorf("null is a %s", v.Type)
	}
}

func TestWhatIsNotJSONStaysAsItIs(t *testing.T) {
	for _, text := range []string{"", "{", `{"a":1}x`, "\xff", `"`} {
		s, field := there(t, record(text))
		if field != FieldPayloadJSON || string(s.Record.Payload) != text || s.Record.Binary {
			t.Errorf("%q: kept in %s, became %q", text, field, s.Record.Payload)
		}
		r := record(text)
		r.Binary = true
		s, field = there(t, r)
		if field != FieldPayloadBytes || string(s.Record.Payload) != text || !s.Record.Binary {
			t.Errorf("bytes %q: kept in %s, became %q", text, field, s.Record.Payload)
		}
	}
}

// TestDoublesReadBackEqual: the short way of telling that a number is an exact double agrees with
// the long one.
func TestDoublesReadBackEqual(t *testing.T) {
	number := rapid.StringMatching(`-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?`)
	rapid.Check(t, func(rt *rapid.T) {
		text := number.Draw(rt, "number")
		s, _ := there(rt, record(text))
		if err := eventlogtest.SameJSON([]byte(text), s.Record.Payload); err != nil {
			rt.Fatalf("%s became %s: %v", text, s.Record.Payload, err)
		}
		f := math.Float64frombits(rapid.Uint64().Draw(rt, "bits"))
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return
		}
		s, field := there(rt, record(string(appendDouble(nil, f))))
		if want := string(appendDouble(nil, f)); field != FieldPayload || string(s.Record.Payload) != want {
			rt.Fatalf("%s, kept in %s, became %s", want, field, s.Record.Payload)
		}
	})
}

// drawJSON writes any JSON, nasty parts more often than chance would.
func drawJSON(t *rapid.T, b []byte, depth int) []byte {
	kind := rapid.IntRange(0, 5+2*min(depth, 1)).Draw(t, "kind")
	switch kind {
	case 0, 1:
		return append(b, rapid.SampledFrom([]string{
			"null", "true", "false", "0", "-0", "1.0", "1e2", "2147483648", "9223372036854775808", "0.1", "1e400", "5e-324",
			"3.14159265358979323846",
		}).Draw(t, "scalar")...)
	case 2:
		return append(b, rapid.StringMatching(`-?(0|[1-9][0-9]{0,20})(\.[0-9]{1,18})?([eE][+-]?[0-9]{1,3})?`).Draw(t, "number")...)
	case 3:
		return append(b, rapid.SampledFrom([]string{`"\ud800"`, `"\u0000\n"`, `"\ud83d\ude00"`, `"\/"`, `"a.b"`, `"$x"`}).Draw(t, "escapes")...)
	case 4, 5:
		return codec.AppendString(b, rapid.String().Draw(t, "text"))
	case 6:
		b = append(b, '[')
		for i := range rapid.IntRange(0, 4).Draw(t, "elements") {
			if i > 0 {
				b = append(b, ',')
			}
			b = drawJSON(t, b, depth-1)
		}
		return append(b, ']')
	}
	b = append(b, '{')
	for i := range rapid.IntRange(0, 5).Draw(t, "members") {
		if i > 0 {
			b = append(b, ',')
		}
		if rapid.IntRange(0, 30).Draw(t, "nasty name") == 0 {
			b = append(b, rapid.SampledFrom([]string{`""`, `"$a"`, `"a.b"`, `"\u0000"`, `"_id"`, `"\ud800"`, `"a"`}).Draw(t, "name")...)
		} else {
			b = codec.AppendString(b, rapid.StringMatching(`[a-zA-Zé]{1,6}`).Draw(t, "name"))
		}
		b = drawJSON(t, append(b, ':'), depth-1)
	}
	return append(b, '}')
}

func TestAnyJSONReadsBackEqual(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		text := drawJSON(rt, nil, rapid.IntRange(0, 5).Draw(rt, "depth"))
		checkJSON(rt, text)
	})
}

func checkJSON(t rapid.TB, text []byte) {
	r := record(string(text))
	s, _ := there(t, r)
	if err := eventlogtest.SameJSON(text, s.Record.Payload); err != nil {
		t.Fatalf("%s became %s: %v", text, s.Record.Payload, err)
	}
	if !codec.SameContent(&r.Event, &s.Record.Event) {
		t.Fatalf("%s became %s", text, s.Record.Payload)
	}
}

func FuzzPayload(f *testing.F) {
	for _, x := range corpus {
		if len(x.text) < 1000 {
			f.Add([]byte(x.text))
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		compact, err := codec.AppendCompact(nil, text, 512)
		if err != nil {
			return
		}
		checkJSON(t, compact)
	})
}

// TestWholeNumbersStayWhole: an equal decimal is not enough for a reader that takes 1E+20 and 1.0
// for no whole numbers.
func TestWholeNumbersStayWhole(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		text := rapid.StringMatching(`0|-?[1-9][0-9]{0,20}0{0,13}`).Draw(r, "number")
		in := record(`{"n":[` + text + `]}`)
		doc, err := Append(nil, "t", 0, in, 1)
		require.NoError(r, err)
		s, err := Decode(doc)
		if err != nil || !bytes.Equal(s.Record.Payload, in.Payload) {
			r.Errorf("%s became %s, %v", in.Payload, s.Record.Payload, err)
		}
	})
}
