package xds_test

import (
	"fmt"
	"testing"

	"github.com/sluice-bus/sluice/internal/policypb"
)

// Each response of policies says of which revision they are, be it pushed, asked for, or of a type
// that the revision left as it was.
func TestResponsesSayTheirRevision(t *testing.T) {
	f := serve(t, policies{"*": 1, "a": 1})
	c := f.connect(t, "n1", "i1")
	c.subscribe(topics, "a")
	c.subscribe(globs, "*")
	for range 2 {
		if r := c.next(); r.GetSystemVersionInfo() != "0/0" {
			t.Errorf("%s begins with revision %q", r.GetTypeUrl(), r.GetSystemVersionInfo())
		} else {
			c.ack(r)
		}
	}
	for n := 1; n <= 3; n++ {
		f.set(policies{"*": int64(1 + n), "a": 1})
		r := c.next()
		if want := fmt.Sprintf("0/%d", n); r.GetTypeUrl() != policypb.GlobPolicyType || r.GetSystemVersionInfo() != want {
			t.Errorf("%s of revision %q, want %s", r.GetTypeUrl(), r.GetSystemVersionInfo(), want)
		}
		c.ack(r)
		name := fmt.Sprint("new", n)
		c.subscribe(topics, name)
		if r = c.next(); r.GetSystemVersionInfo() != fmt.Sprintf("0/%d", n) {
			t.Errorf("%s asked for in revision %d comes as of %q", name, n, r.GetSystemVersionInfo())
		}
		c.ack(r)
	}
}
