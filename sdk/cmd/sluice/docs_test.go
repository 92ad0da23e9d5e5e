package main

import (
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/sluicetest"
)

func TestDocs(t *testing.T) {
	for _, c := range []struct {
		args      string
		has, less string // what is printed has the one, and not the other
	}{
		{"docs", "errors ", "# "},
		{"docs errors", "## rate_limited", "there is no"},
		{"docs errors rate_limited", "**Remedy:**", "## overloaded"},
		{"docs policy publish.rate", "| `publish.rate` |", "`paused`"},
		{"docs sidecar listen", "SLUICE_LISTEN", "SLUICE_STORE"},
		{"docs metrics sluice_group_lag", "| `topic`, `group` |", "sluice_spool"},
		{"docs sidecar-api errors", "## Errors", "## Publishing"},
	} {
		got := run(t, &sluicetest.Sidecar{}, "", strings.Fields(c.args)...)
		got.wantOK(t)
		if !strings.Contains(got.stdout, c.has) || strings.Contains(got.stdout, c.less) {
			t.Errorf("sluice %s prints %.300q", c.args, got.stdout)
		}
	}
	for args, says := range map[string]string{
		"docs eror":               `did you mean "errors"?`,
		"docs errors rate_limmit": `did you mean "rate_limited"?`,
	} {
		got := run(t, &sluicetest.Sidecar{}, "", strings.Fields(args)...)
		if got.status != statusNotFound || !strings.Contains(got.stderr, says) {
			t.Errorf("sluice %s: status %d, %s", args, got.status, got.stderr)
		}
	}
}

// TestDocsHasEveryCode: each code that a server can answer has an entry.
func TestDocsHasEveryCode(t *testing.T) {
	for _, c := range wire.Codes() {
		if got := run(t, &sluicetest.Sidecar{}, "", "docs", "errors", string(c.Code)); !strings.HasPrefix(got.stdout, "## "+string(c.Code)+"\n") {
			t.Errorf("sluice docs errors %s prints %.100q", c.Code, got.stdout)
		}
	}
}
