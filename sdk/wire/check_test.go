package wire

import (
	"strings"
	"testing"
)

// The steps of a path are no names: a URL that has them is another's.
func TestTopicsAreNoSteps(t *testing.T) {
	for name, allowed := range map[string]bool{".": false, "..": false, "...": true, ".a": true, "a.": true, "..dlq": true, ".-": true} {
		if err := CheckTopic(name); (err == nil) != allowed || err != nil && (err.Code != BadRequest || !strings.Contains(err.Msg, "1 to 255")) {
			t.Errorf("publish to %q: %v", name, err)
		}
		if err := CheckReadTopic(name); (err == nil) != allowed {
			t.Errorf("read %q: %v", name, err)
		}
	}
}
