package codec

import (
	"bytes"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
)

func jsonEvent(payload string) *wire.Event { return &wire.Event{Payload: []byte(payload)} }

func TestSameContentOfPayloads(t *testing.T) {
	thousand := strings.Repeat("9", 1000)
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{`1.0`, `1`, true}, {`1`, `1e0`, true}, {`10e-1`, `1`, true}, {`-0`, `0`, true}, {`0e999`, `-0.000`, true},
		{`1e400`, `10e399`, true}, {`1e400`, `1e401`, false}, {`-1`, `1`, false}, {`100`, `1e2`, true}, {`0.1`, `0.10`, true},
		{`12345678901234567890`, `12345678901234567891`, false}, {`12345678901234567890`, `1234567890123456789e1`, true},
		{`1e` + thousand, `10e` + thousand[1:] + `8`, true}, {`1e` + thousand, `0.1e1` + strings.Repeat("0", 1000), true},
		{`1e-1` + strings.Repeat("0", 1000), `0.1e-` + thousand, true}, {`1e1000000000000000000`, `10e999999999999999999`, true},
		{`1e-1000000000000000000`, `0.1e-999999999999999999`, true}, {`1e1`, `1e-1`, false},
		{`"\u0041"`, `"A"`, true}, {`"\ud83d\ude00"`, `"😀"`, true}, {`"\ud800"`, `"\uD800"`, true}, {`"\ud800"`, "\"\ufffd\"", false},
		{`"\ud800"`, `"\ud801"`, false}, {`"\/"`, `"/"`, true}, {`"1"`, `1`, false}, {`null`, `false`, false}, {`[]`, `{}`, false},
		{`{"a":1,"b":[1,2]}`, `{"b":[1.0,2],"a":1}`, true}, {`[1,2]`, `[2,1]`, false}, {`[[1],2]`, `[[1,2]]`, false},
		{`{"a":1,"a":2}`, `{"a":2,"a":1}`, false}, {`{"a":1,"a":2}`, `{"a":2}`, false}, {`{"\u0061":1}`, `{"a":1}`, true},
		{`{"a":{"b":1}}`, `{"a":{},"b":1}`, false}, {`{"a":null}`, `{}`, false},
	} {
		a, b := jsonEvent(c.a), jsonEvent(c.b)
		if got := SameContent(a, b); got != c.same {
			t.Errorf("%.40s and %.40s: same is %v", c.a, c.b, got)
		}
		if got := ContentHash(a) == ContentHash(b); got != c.same {
			t.Errorf("%.40s and %.40s: equal hashes is %v", c.a, c.b, got)
		}
	}
}

func TestSameContentOfTheRest(t *testing.T) {
	base := wire.Event{ID: "1", TS: 1, Key: "k", Headers: wire.Headers{{Name: "a", Value: "1"}, {Name: "b", Value: "2"}}, Payload: []byte(`1`)}
	change := func(f func(*wire.Event)) *wire.Event {
		e := base
		e.Headers = slices.Clone(base.Headers)
		f(&e)
		return &e
	}
	for name, c := range map[string]struct {
		b    *wire.Event
		same bool
	}{
		"id, ts, tags": {change(func(e *wire.Event) { e.ID, e.TS, e.Tags = "2", 2, []string{"x"} }), true},
		"key":          {change(func(e *wire.Event) { e.Key = "l" }), false},
		"sluice headers": {change(func(e *wire.Event) {
			e.Headers = append(e.Headers, wire.Header{Name: wire.HeaderSchemaVersion, Value: "2"}, wire.Header{Name: wire.HeaderRedriven,
				Value: "x"})
		}), true},
		"header order":   {change(func(e *wire.Event) { slices.Reverse(e.Headers) }), true},
		"header value":   {change(func(e *wire.Event) { e.Headers[0].Value = "3" }), false},
		"header missing": {change(func(e *wire.Event) { e.Headers = e.Headers[:1] }), false},
		"trace headers": {change(func(e *wire.Event) {
			e.Headers = append(e.Headers, wire.Header{Name: "traceparent", Value: "x"}, wire.Header{Name: "tracestate", Value: "y"},
				wire.Header{Name: "baggage", Value: "z"})
		}), true},
		"bytes": {change(func(e *wire.Event) { e.Binary = true }), false},
	} {
		if got := SameContent(&base, c.b); got != c.same {
			t.Errorf("%s: same is %v", name, got)
		}
		if got := ContentHash(&base) == ContentHash(c.b); got != c.same {
			t.Errorf("%s: equal hashes is %v", name, got)
		}
	}
	a, b := wire.Event{Binary: true, Payload: []byte(`1.0`)}, wire.Event{Binary: true, Payload: []byte(`1`)}
	if SameContent(&a, &b) || ContentHash(&a) == ContentHash(&b) {
		t.Error("bytes are compared as JSON")
	}
}

// cpuTime is what this process has used of the processors: other load does not count.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Payloads built to be slow must not be: each is about a mebibyte.
func TestContentHashOfHostilePayloads(t *testing.T) {
	var members, same strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&members, `,"%d":1`, (i*7919)%100_000)
		same.WriteString(`,"same":1`)
	}
	filling := strings.Repeat("x", 1<<20)
	for name, payload := range map[string]string{
		"many members":         `{` + members.String()[1:] + `}`,
		"one name over again":  `{` + same.String()[1:] + `}`,
		"deep, unsorted":       strings.Repeat(`{"b":`, 512) + `"` + filling + `"` + strings.Repeat(`,"a":1}`, 512),
		"many empty arrays":    `[` + strings.Repeat(`[],`, 1<<18) + `1]`,
		"a long number":        strings.Repeat("9", 1<<20),
		"a long exponent":      `1e` + strings.Repeat("9", 1<<20),
		"a long fraction":      `0.` + strings.Repeat("0", 1<<20) + `1e-` + strings.Repeat("9", 1<<19),
		"escapes from end end": `"` + strings.Repeat(`\u0041`, 1<<18) + `"`,
	} {
		start := cpuTime(t)
		ContentHash(jsonEvent(payload))
		if took := cpuTime(t) - start; took > 5*time.Second {
			t.Errorf("%s took %v", name, took)
		}
	}
}

func TestDecimalsCompareAsNumbers(t *testing.T) {
	atRandom(t, func(t *testing.T, r *rand.Rand) {
		a, b := number(r, 5, 5, 2), number(r, 5, 5, 2)
		x, _ := new(big.Rat).SetString(a)
		y, _ := new(big.Rat).SetString(b)
		if same := SameContent(jsonEvent(a), jsonEvent(b)); same != (x.Cmp(y) == 0) {
			t.Fatalf("%s and %s: same is %v", a, b, same)
		}
		if n, ok := wholeNumber([]byte(a)); ok && x.Cmp(new(big.Rat).SetInt64(n)) != 0 {
			t.Fatalf("%s read as %d", a, n)
		} else if !ok && x.IsInt() && x.Num().CmpAbs(big.NewInt(1e17)) < 0 {
			t.Fatalf("%s is whole", a)
		}
	})
}

// A value written in two ways is the same; its hash says so too.
func TestSameContentWhateverTheSpelling(t *testing.T) {
	atRandom(t, func(t *testing.T, r *rand.Rand) {
		a, b := spellTwice(r, 3)
		if !SameContent(jsonEvent(a), jsonEvent(b)) || ContentHash(jsonEvent(a)) != ContentHash(jsonEvent(b)) {
			t.Fatalf("%s and %s should be the same", a, b)
		}
	})
}

func spellTwice(r *rand.Rand, depth int) (a, b string) {
	kinds := []string{"number", "string", "literal", "array", "object"}
	switch kinds[r.IntN(3+min(depth, 1)*2)] {
	case "number":
		n := r.IntN(1999) - 999
		return fmt.Sprint(n), fmt.Sprintf("%d.%s", n, strings.Repeat("0", 1+r.IntN(3)))
	case "string":
		c := 'A' + r.IntN(26)
		return fmt.Sprintf(`"%c"`, c), fmt.Sprintf(`"\u%04x"`, c)
	case "array":
		var as, bs []string
		for range r.IntN(4) {
			x, y := spellTwice(r, depth-1)
			as, bs = append(as, x), append(bs, y)
		}
		return `[` + strings.Join(as, ",") + `]`, `[` + strings.Join(bs, ",") + `]`
	case "object":
		var as, bs []string
		for i := range r.IntN(5) {
			x, y := spellTwice(r, depth-1)
			name := fmt.Sprintf(`"m%d":`, i)
			as, bs = append(as, name+x), append(bs, name+y)
		}
		r.Shuffle(len(bs), func(i, j int) { bs[i], bs[j] = bs[j], bs[i] })
		return `{` + strings.Join(as, ",") + `}`, `{` + strings.Join(bs, ",") + `}`
	}
	return "null", "null"
}

func FuzzSameContent(f *testing.F) {
	for i, text := range nasty {
		f.Add([]byte(text), []byte(nasty[(i+1)%len(nasty)]))
	}
	f.Add([]byte(`{"a":1,"b":2}`), []byte(`{"b":2.0,"\u0061":1}`))
	f.Fuzz(func(t *testing.T, x, y []byte) {
		a, err := AppendCompact(nil, x, 1000)
		if err != nil {
			return
		}
		b, err := AppendCompact(nil, y, 1000)
		if err != nil {
			return
		}
		ea, eb := &wire.Event{Payload: a}, &wire.Event{Payload: b}
		same := SameContent(ea, eb)
		if same != SameContent(eb, ea) || same != (ContentHash(ea) == ContentHash(eb)) ||
			!SameContent(ea, &wire.Event{Payload: slices.Clone(a)}) {
			t.Fatalf("%q and %q: same is %v, and something disagrees", a, b, same)
		}
	})
}

// FuzzCanonicalJSON: exactly what AppendCompact refuses stands for itself.
func FuzzCanonicalJSON(f *testing.F) {
	for _, text := range nasty {
		f.Add([]byte(text))
	}
	for _, b := range broken {
		f.Add([]byte(b.text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		compact, err := AppendCompact(nil, text, math.MaxInt)
		form := new(canon).appendJSON(nil, text)
		if (form[0] == 'x') != (err != nil) {
			t.Fatalf("%q: %v, and the form is %q", text, err, form)
		}
		if err == nil && !bytes.Equal(form, new(canon).appendJSON(nil, compact)) {
			t.Fatalf("%q has another form than %q", text, compact)
		}
	})
}

// The hash of an event does not depend on the events hashed before it in the same memory.
func TestContentHashesAtOnce(t *testing.T) {
	events := goldenEvents()
	want := make([][32]byte, len(events))
	for i := range events {
		want[i] = new(canon).hash(&events[i].event)
	}
	var wg sync.WaitGroup
	for n := range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range events {
				i = (i + n*len(events)/4) % len(events)
				if ContentHash(&events[i].event) != want[i] {
					t.Errorf("%s has another hash among others", events[i].name)
				}
			}
		}()
	}
	wg.Wait()
}

func TestContentHashAllocatesNothing(t *testing.T) {
	e, c := orderEvent(), new(canon)
	e.Payload = []byte(`{"\u006eame\n":"text\n","z":[1.5e-7,-120,0.001],"a":` + orderPayload + `}`)
	if n := testing.AllocsPerRun(100, func() { c.hash(e) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
