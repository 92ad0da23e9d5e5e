package rest

import (
	"errors"
	"net/http"
	"testing"

	"github.com/sluice-bus/sluice/sdk/wire"
)

func TestConditions(t *testing.T) {
	for _, tc := range []struct {
		name, value string
		current     int64
		permits     bool
	}{
		{"If-Match", `"3"`, 3, true},
		{"If-Match", `"3"`, 4, false},
		{"If-Match", `"3"`, 0, false},
		{"If-Match", `"0"`, 0, false},
		{"If-Match", `"03"`, 3, false},
		{"If-Match", `W/"3"`, 3, false},
		{"If-Match", `"1", "3"`, 3, true},
		{"If-Match", `"1","2"`, 3, false},
		{"If-Match", ` ,"1" ,, "3",`, 3, true},
		{"If-Match", `W/"3", "3"`, 3, true},
		{"If-Match", `"a,b" , "3"`, 3, true},
		{"If-Match", `""`, 3, false},
		{"If-Match", `*`, 3, true},
		{"If-Match", ` * `, 3, true},
		{"If-Match", `*`, 0, false},
		{"If-None-Match", `*`, 0, true},
		{"If-None-Match", `*`, 3, false},
		{"If-None-Match", `"3"`, 3, false},
		{"If-None-Match", `W/"3"`, 3, false},
		{"If-None-Match", `"2", W/"3"`, 3, false},
		{"If-None-Match", `"2"`, 3, true},
		{"If-None-Match", `"3"`, 0, true},
	} {
		c, err := readCondition(http.Header{tc.name: {tc.value}})
		if err != nil {
			t.Errorf("%s: %s: %v", tc.name, tc.value, err)
			continue
		}
		err = c.permits(tc.current)
		if (err == nil) != tc.permits || err != nil && !errors.Is(err, &wire.Error{Code: wire.PreconditionFailed}) {
			t.Errorf("%s: %s with version %d: %v", tc.name, tc.value, tc.current, err)
		}
	}
}

func TestMalformedConditions(t *testing.T) {
	for _, value := range []string{"", " ", ",", ",,", "3", `"3`, `3"`, `"`, `"3" "4"`, `"3"x`, `w/"3"`, `W/3`, `W/ "3"`, `W/`,
		`*,"3"`, `"3",*`, `**`, "\"a b\"", "\"a\x7f\"", `'3'`} {
		for _, name := range []string{"If-Match", "If-None-Match"} {
			if _, err := readCondition(http.Header{name: {value}}); !errors.Is(err, &wire.Error{Code: wire.BadRequest}) {
				t.Errorf("%s: %q: %v", name, value, err)
			}
		}
	}
	if _, err := readCondition(http.Header{"If-Match": {`"1"`, `2`}}); err == nil {
		t.Error("a malformed second line passed")
	}
}

func TestConditionsAbsentAndRepeated(t *testing.T) {
	c, err := readCondition(http.Header{})
	if err != nil || c.permits(0) != nil || c.permits(3) != nil || c.fresh(3) {
		t.Errorf("no condition: %v, %+v", err, c)
	}
	c, err = readCondition(http.Header{"If-Match": {`"1"`, `"3"`}, "If-None-Match": {`W/"3"`}})
	if err != nil || !c.fresh(3) || c.fresh(1) || c.permits(1) != nil || c.permits(3) == nil {
		t.Errorf("both: %v, %+v", err, c)
	}
}

func FuzzConditions(f *testing.F) {
	for _, s := range []string{`"3"`, `W/"3"`, `*`, `"1", "3"`, `,`, "\"\x80\""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, value string) {
		c, err := readTags(http.Header{"If-Match": {value}}, "If-Match")
		if err == nil && c.star == (len(c.list) > 0) {
			t.Errorf("%q: neither * nor tags: %+v", value, c)
		}
		for _, tag := range c.list {
			if len(tag.opaque) < 2 || tag.opaque[0] != '"' || tag.opaque[len(tag.opaque)-1] != '"' {
				t.Errorf("%q: tag %q", value, tag.opaque)
			}
		}
	})
}
