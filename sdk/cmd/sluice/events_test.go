package main

import (
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/test/sluicetest"
)

func TestEvents(t *testing.T) {
	sidecar := start(t, sluicetest.Options{})
	fill(t, sidecar, "orders", 5)
	run(t, sidecar, "", "pub", "orders", `{"n":9}`, "--id", "x", "--key", "k", "--header", "tenant=acme").wantOK(t)
	for args, want := range map[string]string{
		"":                          "e0 e1 e2 e3 e4 x",
		"-n 2":                      "e4 x",
		"--key k":                   "x",
		"--header tenant=acme":      "x",
		"--header tenant=other":     "",
		`--grep "n":[13]`:           "e1 e3",
		`--grep "n":[0-9] --last 3`: "e3 e4 x",
		"--tag none":                "",
	} {
		got := run(t, sidecar, "", append([]string{"events", "orders"}, strings.Fields(args)...)...).wantOK(t)
		var ids []string
		for line := range strings.Lines(got.stdout) {
			ids = append(ids, strings.Fields(line)[2])
		}
		if strings.Join(ids, " ") != want {
			t.Errorf("sluice events orders %s: %q, want %q", args, ids, want)
		}
	}
	run(t, sidecar, "", "events", "order").wantFailure(t, 3, `did you mean "orders"`)
	run(t, sidecar, "", "events", "orders", "--header", "x").wantFailure(t, 2, "NAME=VALUE")
	run(t, sidecar, "", "replay", "order").wantFailure(t, 3, `did you mean "orders"`)
}

func TestImport(t *testing.T) {
	sidecar := start(t, sluicetest.Options{})
	fill(t, sidecar, "orders", 3)
	run(t, sidecar, "", "pub", "orders", `{"n":9}`, "--id", "x", "--key", "k", "--header", "tenant=acme").wantOK(t)
	exported := run(t, sidecar, "", "export", "orders", "-").wantOK(t).stdout
	for _, says := range []string{"published 4 events", "4 of them published before"} {
		if got := run(t, sidecar, exported, "import", "-", "--topic", "copy").wantOK(t); !strings.Contains(got.stdout, says) {
			t.Errorf("%q, want %q", got.stdout, says)
		}
	}
	copied := run(t, sidecar, "", "export", "copy", "-").wantOK(t).stdout
	if strings.ReplaceAll(copied, `"topic":"copy"`, `"topic":"orders"`) != exported {
		t.Errorf("%s\nwant\n%s", copied, exported)
	}
	got := run(t, sidecar, exported+"{}\n", "import", "-").wantFailure(t, 4, "line 5")
	if !strings.Contains(got.stdout, "published 4 events") {
		t.Errorf("%q", got.stdout)
	}
}
