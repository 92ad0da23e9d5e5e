package federation

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// cutAll cuts a whole text and returns its lines, and the proper end as nil.
func cutAll(t *splitter, src io.Reader) (lines []string, places []eventlog.Point, err error) {
	for err == nil {
		c := newChunk()
		err = t.fill(c, src, func() bool { return false })
		from := 0
		for _, l := range c.lines {
			lines = append(lines, string(c.text[l.start:l.end]))
			places = append(places, eventlog.Point{TS: l.ts, ID: c.ids[from:l.idEnd]})
			from = l.idEnd
		}
		c.release()
	}
	if err == io.EOF {
		err = nil
	}
	return lines, places, err
}

func TestLines(t *testing.T) {
	long := `{"id":"c","ts":3,"topic":"t","payload":"` + strings.Repeat("x", 5*chunkBytes) + `"}`
	for _, tc := range []struct {
		name, text string
		places     string // id@ts
		problem    string
	}{
		{"plain", `{"id":"a","ts":1,"topic":"t","payload":1}` + "\n" + `{"id":"b","ts":1,"topic":"t","payload":1}` + "\n", "a@1 b@1", ""},
		{"nothing", "", "", ""},
		{"signs of life", "\n\r\n" + `{"id":"a","ts":1,"topic":"t","payload":1}` + "\n\n", "a@1", ""},
		{"another order of members", `{"ts":1,"id":"a","topic":"t","payload":1}` + "\n" + ` { "id" : "b" , "ts" : 20, "topic":"t","payload":1}` +
			"\n", "a@1 b@20", ""},
		{"escapes", `{"id":"a\"\\","ts":1,"topic":"t","payload":1}` + "\n" + `{"id":"a\u00e9","ts":2,"topic":"t","payload":1}` + "\n",
			`a"\@1 aé@2`, ""},
		{"a line longer than a chunk", `{"id":"a","ts":1,"topic":"t","payload":1}` + "\n" + long + "\n" +
			`{"id":"d","ts":4,"topic":"t","payload":1}` + "\n", "a@1 c@3 d@4", ""},
		{"cut off", `{"id":"a","ts":1,"topic":"t","payload":1}` + "\n" + `{"id":"b","t`, "a@1", "in the middle of a line"},
		{"without its line feed", `{"id":"a","ts":1,"topic":"t","payload":1}`, "", "in the middle of a line"},
		{"out of order", `{"id":"a","ts":2,"topic":"t","payload":1}` + "\n" + `{"id":"b","ts":1,"topic":"t","payload":1}` + "\n", "a@2",
			"out of order"},
		{"ids out of order", `{"id":"b","ts":2,"topic":"t","payload":1}` + "\n" + `{"id":"a","ts":2,"topic":"t","payload":1}` + "\n", "b@2",
			"out of order"},
		{"twice", `{"id":"b","ts":2,"topic":"t","payload":1}` + "\n" + `{"id":"b","ts":2,"topic":"t","payload":1}` + "\n", "b@2", "out of order"},
		{"no event", `{"id":"a","ts":1,"topic":"t","payload":1}` + "\n" + "[1]\n", "a@1", "no event"},
		{"no id", `{"ts":1,"topic":"t","payload":1}` + "\n", "", "no id"},
		{"no JSON", `{"id":"a","ts":1,"topic":"t","payload":1` + "\n", "", "no event"},
		{"a ts that is no whole number", `{"id":"a","ts":1.5,"topic":"t","payload":1}` + "\n", "", "no event"},
	} {
		for _, reader := range []struct {
			name string
			of   func(io.Reader) io.Reader
		}{
			{"at once", func(r io.Reader) io.Reader { return r }},
			{"by bytes", iotest.OneByteReader},
			{"with the end", iotest.DataErrReader},
		} {
			t.Run(tc.name+" "+reader.name, func(t *testing.T) {
				_, places, err := cutAll(&splitter{maxLine: 1 << 20}, reader.of(strings.NewReader(tc.text)))
				var got []string
				for _, p := range places {
					got = append(got, fmt.Sprintf("%s@%d", p.ID, p.TS))
				}
				if strings.Join(got, " ") != tc.places {
					t.Errorf("got %q, want %q", got, tc.places)
				}
				if (err != nil) != (tc.problem != "") || err != nil && !strings.Contains(err.Error(), tc.problem) {
					t.Errorf("error %v, want %q", err, tc.problem)
				}
			})
		}
	}
}

func TestALineTooLong(t *testing.T) {
	text := `{"id":"a","ts":1,"payload":"` + strings.Repeat("x", 4*chunkBytes)
	if _, _, err := cutAll(&splitter{maxLine: 2 * chunkBytes}, strings.NewReader(text)); err == nil ||
		!strings.Contains(err.Error(), "longer than") {
		t.Error(err)
	}
}

// beats is so many signs of life, and an end.
type beats struct {
	left int
	end  error
}

func (b *beats) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, b.end
	}
	p = p[:min(len(p), b.left)]
	b.left -= len(p)
	return copy(p, strings.Repeat("\n", len(p))), nil
}

// TestSignsOfLifeNeedNoRoom: a part that is alive and finds nothing, or whose sidecar is up to no
// good, fills no buffer.
func TestSignsOfLifeNeedNoRoom(t *testing.T) {
	begun := `{"id":"a","ts":1,"topic":"t","payload":"`
	end := strings.Repeat("x", chunkBytes) + `"}` + "\n"
	src := io.MultiReader(&beats{100 * chunkBytes, io.EOF}, strings.NewReader(begun+end), &beats{100 * chunkBytes, io.ErrUnexpectedEOF})
	cut := &splitter{maxLine: 1 << 20}
	c := newChunk()
	if err := cut.fill(c, src, func() bool { return false }); err != nil || len(c.lines) != 1 {
		t.Fatal(len(c.lines), err)
	}
	if l := c.lines[0]; string(c.text[l.start:l.end])+"\n" != begun+end {
		t.Error("the line behind the signs of life is not whole")
	}
	if got := cap(c.text); got > 4*chunkBytes {
		t.Errorf("there are %d bytes of room", got)
	}
	c = newChunk()
	if err := cut.fill(c, src, func() bool { return false }); !errors.Is(err, io.ErrUnexpectedEOF) || cap(c.text) > chunkBytes {
		t.Errorf("%v, with %d bytes of room", err, cap(c.text))
	}
}

// TestGoingOn: a source that goes on behind another one's last line must not come before it.
func TestGoingOn(t *testing.T) {
	line := func(id string, ts int) string {
		return fmt.Sprintf(`{"id":%q,"ts":%d,"topic":"t","payload":1}`+"\n", id, ts)
	}
	for _, tc := range []struct {
		desc   bool
		second string
		ok     bool
	}{
		{false, line("b", 5), false}, {false, line("a", 5), false}, {false, line("c", 5), true}, {false, line("a", 6), true},
		{true, line("b", 5), false}, {true, line("c", 5), false}, {true, line("a", 5), true}, {true, line("z", 4), true},
	} {
		cut := &splitter{maxLine: 100, desc: tc.desc}
		failing := io.MultiReader(strings.NewReader(line("b", 5)+`{"id":"half`), iotest.ErrReader(errors.New("broken")))
		if lines, _, err := cutAll(cut, failing); err == nil || len(lines) != 1 {
			t.Fatal(lines, err)
		}
		cut.restart()
		if _, _, err := cutAll(cut, strings.NewReader(tc.second)); (err == nil) != tc.ok {
			t.Errorf("descending %v, %s: %v", tc.desc, tc.second, err)
		}
	}
}

// FuzzPlace checks that the place read off a line's beginning is that of the whole line.
func FuzzPlace(f *testing.F) {
	for _, s := range []string{
		`{"id":"a","ts":1,"topic":"t","payload":{"id":"b"}}`, `{"id":"a\"","ts":12,"topic":"t","payload":1}`, `{"id":"","ts":1}`,
		`{"id":"a","ts":01,"x":1}`, `{"id":"a","ts":-1,"x":1}`, `{"id":"a","ts":99999999999999999999,"x":1}`, `{"id":"a","ts":1}`, `{}`,
		`{"id":"a","ts":1,"id":"b"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		ts, id, err := appendPlace(nil, text)
		e, whole := codec.ParseEvent(text)
		right := err == nil && ts == e.TS && string(id) == e.ID
		once := bytes.Count(text, []byte(`"id"`)) == 1 && bytes.Count(text, []byte(`"ts"`)) == 1
		if whole == nil && e.ID != "" && once && !right {
			t.Fatalf("%q: got %q at %d, %v; want %q at %d", text, id, ts, err, e.ID, e.TS)
		}
	})
}

// FuzzLines: from any text, in any pieces, the lines come in order, and nothing else.
func FuzzLines(f *testing.F) {
	f.Add([]byte(`{"id":"a","ts":1,"x":1}`+"\n"+`{"id":"b","ts":1,"x":1}`+"\n"), false)
	f.Add([]byte(`{"id":"b","ts":1,"x":1}`+"\n\n"+`{"id":"a","ts":1,"x":1}`+"\r\n"), true)
	f.Fuzz(func(t *testing.T, text []byte, desc bool) {
		lines, places, err := cutAll(&splitter{maxLine: 1 << 16, desc: desc}, bytes.NewReader(text))
		again, _, err2 := cutAll(&splitter{maxLine: 1 << 16, desc: desc}, iotest.HalfReader(bytes.NewReader(text)))
		if len(again) != len(lines) || (err == nil) != (err2 == nil) {
			t.Fatalf("%d lines, %v; in pieces %d lines, %v", len(lines), err, len(again), err2)
		}
		for i := range places {
			if i > 0 && !precedes(places[i-1], places[i], desc) {
				t.Fatalf("%v after %v", places[i], places[i-1])
			}
			if !bytes.Contains(text, []byte(lines[i]+"\n")) {
				t.Fatalf("%q is no line", lines[i])
			}
		}
	})
}
