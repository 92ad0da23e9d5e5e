package figures

import (
	"strings"
	"testing"
)

func TestJudge(t *testing.T) {
	for name, test := range map[string]struct {
		want     figure
		known    bool
		measured float64
		says     string
		ok       bool
	}{
		"new":    {measured: 3, says: "new: 3, and test/figures/figures.json has no such figure"},
		"equal":  {figure{10, 0}, true, 10, "equal: 10, +0.0 % from the 10 of", true},
		"better": {figure{10, 0}, true, 5, "better: 5, -50.0 % from the 10 of", true},
		"within": {figure{10, 0.1}, true, 10.9, "+9.0 %", true},
		"worse":  {figure{10, 0.1}, true, 12, "worse: 12, +20.0 % from the 10 of test/figures/figures.json (10 % are allowed)", false},
	} {
		if says, ok := judge(name, test.want, test.known, test.measured); ok != test.ok || !strings.Contains(says, test.says) {
			t.Errorf("%s: %v, %q", name, ok, says)
		}
	}
}
