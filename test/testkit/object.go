package testkit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// Object is a JSON object whose numbers are json.Number.
type Object map[string]any

// ParseObject reads a text that begins with a JSON object.
func ParseObject(t testing.TB, text []byte) Object {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var o Object
	if err := d.Decode(&o); err != nil {
		t.Fatalf("not a JSON object: %v\n%.500s", err, text)
	}
	return o
}

// At walks a path of members, as in "event.headers.a"; nil for a missing member.
func (o Object) At(path string) any {
	var v any = map[string]any(o)
	for name := range strings.SplitSeq(path, ".") {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[name]
	}
	return v
}

// Text is a member as it prints: "" where there is none.
func (o Object) Text(path string) string {
	v := o.At(path)
	if v == nil {
		return ""
	}
	return fmt.Sprint(v)
}

// Members are the values of members as they print, by their paths; "" is that of one that is missing.
type Members map[string]string

// Has tells whether all members have these values.
func (o Object) Has(want Members) bool {
	for path, text := range want {
		if o.Text(path) != text {
			return false
		}
	}
	return true
}

// Number is a member that must be a whole number.
func (o Object) Number(t testing.TB, path string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(o.Text(path), 10, 64)
	if err != nil {
		t.Fatalf("%s is not a whole number in %v", path, o)
	}
	return n
}

// List are the members of an array of objects.
func (o Object) List(path string) []Object {
	items, _ := o.At(path).([]any)
	var out []Object
	for _, i := range items {
		m, _ := i.(map[string]any)
		out = append(out, m)
	}
	return out
}
