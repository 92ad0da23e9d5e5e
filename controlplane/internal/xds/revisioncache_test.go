package xds_test

import (
	"fmt"
	"testing"
)

// Each response of policies says of which revision they are, be it pushed, asked for, or of content
// that the revision left as it was.
func TestResponsesSayTheirRevision(t *testing.T) {
	f := serve(t, policies{"*": 1, "a": 1})
	c := f.connect(t, "n1", "i1")
	c.policies()
	if r := c.expect(policies{"*": 1, "a": 1}); r.GetSystemVersionInfo() != "0/0" {
		t.Errorf("begins with revision %q", r.GetSystemVersionInfo())
	}
	for n := 1; n <= 6; n++ {
		want, now := fmt.Sprintf("0/%d", n), policies{"*": int64(1 + n/2), "a": 1}
		f.set(now)
		if n%2 == 0 {
			if r := c.expect(now); r.GetSystemVersionInfo() != want {
				t.Errorf("revision %q, want %s", r.GetSystemVersionInfo(), want)
			}
		}
		c.policies()
		if r := c.expect(now); r.GetSystemVersionInfo() != want {
			t.Errorf("asked for in revision %s comes as of %q", want, r.GetSystemVersionInfo())
		}
	}
}
