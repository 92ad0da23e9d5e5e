package manage_test

import (
	"testing"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/manage"
)

// FuzzCursorOf: a cursor is either one that a group can be moved to or refused.
func FuzzCursorOf(f *testing.F) {
	for _, seed := range []string{`{"from":"ts","ts":5}`, `{"from":"afterId","afterId":"x"}`, `{"from":null}`, `null`, `{"FROM":"earliest"}`,
		`{"ts":1e3,"from":"ts"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		o, bad := manage.CursorOf(content)
		switch {
		case bad != nil:
			if bad.Code != wire.BadRequest && bad.Code != wire.BadJSON || bad.Msg == "" {
				t.Fatalf("%s: %v", content, bad)
			}
		case o.From == "", o.From == wire.FromTS && o.TS == nil, o.From == wire.FromAfterID && codec.CheckID(o.AfterID) != nil:
			t.Fatalf("%s: %+v", content, o)
		}
	})
}
