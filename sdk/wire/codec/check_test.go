package codec

import (
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// Only sidecars write dead letters; everybody may read them.
func TestTopicsOfDeadLettersAreRead(t *testing.T) {
	for _, name := range []string{"orders.dlq", "orders.dlq.dlq", ".dlq"} {
		if err := CheckTopic(name); err == nil || err.Code != wire.BadRequest {
			t.Errorf("publish to %q: %v", name, err)
		}
		if err := CheckReadTopic(name); err != nil {
			t.Errorf("read %q: %v", name, err)
		}
	}
}

// The steps of a path are no names: a URL that has them is another's.
func TestTopicsAreNoSteps(t *testing.T) {
	for name, allowed := range map[string]bool{".": false, "..": false, "...": true, ".a": true, "a.": true, "..x": true, ".-": true} {
		if err := CheckTopic(name); (err == nil) != allowed || err != nil && (err.Code != wire.BadRequest ||
			!strings.Contains(err.Msg, "1 to 255")) {
			t.Errorf("publish to %q: %v", name, err)
		}
		if err := CheckReadTopic(name); (err == nil) != allowed {
			t.Errorf("read %q: %v", name, err)
		}
	}
}

// Names and ids are shown in logs, on terminals and in paths: what they hold is visible, in both
// directions of text, and ends no line.
func TestNamesAreVisible(t *testing.T) {
	for _, bad := range []string{"a\nb", "a\rb", "a\x00b", "a\x1b[2Jb", "a\u202eb", "a\u200bb", "a\u0085b", "a b", "a\xffb", "a\x7fb"} {
		checks := map[string]*wire.Error{"topic": CheckTopic(bad), "topic to read": CheckReadTopic(bad), "group": CheckGroup(bad),
			"id": CheckID(bad)}
		for what, err := range checks {
			if err == nil || err.Code != wire.BadRequest || bad != "a b" && strings.Contains(err.Msg, bad) {
				t.Errorf("%s %q: %v", what, bad, err)
			}
		}
	}
	for what, err := range map[string]*wire.Error{"topic": CheckTopic("a/b"), "group": CheckGroup("a/b")} {
		if err == nil {
			t.Errorf("%s may hold a slash", what)
		}
	}
	if err := CheckID("größe-日本-✓"); err != nil {
		t.Error(err)
	}
}
