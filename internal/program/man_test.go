package program

import (
	"strings"
	"testing"
)

func TestManualPage(t *testing.T) {
	page := start(t, []string{"XDG_DATA_HOME=/a"}, "", "--man")
	elsewhere := start(t, []string{"XDG_DATA_HOME=/b"}, "", "--man")
	if page.status != StatusOK || page.ran || page.stdout != elsewhere.stdout {
		t.Fatalf("status %d, ran %v, the same elsewhere: %v\n%s", page.status, page.ran, page.stdout == elsewhere.stdout, page.stderr)
	}
	for _, want := range []string{
		".TH SLUICE-TEST 1 \"\" \"Sluice devel\" \"Sluice\"\n.SH NAME\nsluice\\-test \\- A program for tests\n.SH SYNOPSIS\n",
		".TP\n\\fB\\-\\-listen\\fR=\\fILISTEN\\fR\nWhere applications connect (default: 127.0.0.1:7070).\n",
		".TP\n\\fB\\-\\-data\\-dir\\fR=\\fIDIR\\fR\nWhere the data lies (default: sluice/PROGRAM in $XDG_DATA_HOME, or in \\(ti/.local/share).\n",
		".TP\n\\fB\\-\\-[no\\-]durable\\fR\nA switch that is on.\n",
		"\n.SH ENVIRONMENT AND FILES\nEach of these flags",
		".SH EXAMPLES\n.nf\nsluice\\-test \\-\\-listen 127.0.0.1:0\n",
	} {
		if !strings.Contains(page.stdout, want) {
			t.Errorf("the page lacks %q:\n%s", want, page.stdout)
		}
	}
	if strings.Contains(page.stdout, `\-man`) {
		t.Error("the page has a hidden flag")
	}
}

func TestTextIsNoRequest(t *testing.T) {
	if got, want := roff(".TH is\n'so, C:\\n"), "\\&.TH is\n\\&'so, C:\\en"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
