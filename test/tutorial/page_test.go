package tutorial

import (
	"reflect"
	"testing"
)

func TestShown(t *testing.T) {
	for _, test := range []struct {
		want, got string
		prefix    bool
		shown     bool
	}{
		{"a  b\n", "a     b\n", false, true},
		{"a\n", "a\nb\n", false, false},
		{"a\n", "a\nb\n", true, true},
		{"", "a\n", false, false},
		{"{\"id\":\"…\",\"seq\":1}\n", "{\"id\":\"x.y\",\"seq\":1}\n", false, true},
		{"{\"id\":\"…\",\"seq\":1}\n", "{\"id\":\"x\",\"seq\":2}\n", false, false},
		{"a…\n", "a\nb\n", false, false}, // within a line alone
		{"…\nc\n", "a\nb\nc\n", false, true},
		{"…\nc\n", "c\n", false, true},
		{"…\nc\n", "a\nb\n", false, false},
	} {
		if got := shown(test.want, test.got, test.prefix); got != test.shown {
			t.Errorf("%q shows %q: %t", test.want, test.got, got)
		}
	}
}

func TestBlocks(t *testing.T) {
	for _, page := range []string{"```console\nno command\n```", "```console\n```", "```console\n$ a",
		"```console background\n$ a\n$ b\n```"} {
		if all, err := blocks(page); err == nil {
			t.Errorf("%q: %v", page, all)
		}
	}
	all, err := blocks("```sh\n$ not run\n```\n```console\n$ a \\\n> b\nc\n> d\n$ e\n```\n```console background\n$ f\n```\n")
	if err != nil {
		t.Fatal(err)
	}
	want := []block{
		{line: 4, steps: []step{{"a \\\nb", "c\n> d\n"}, {"e", ""}}},
		{line: 11, background: true, steps: []step{{"f", ""}}},
	}
	if !reflect.DeepEqual(all, want) {
		t.Errorf("%+v, want %+v", all, want)
	}
}
