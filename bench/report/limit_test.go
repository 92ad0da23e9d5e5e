package report

import (
	"strings"
	"testing"
	"time"
)

func TestLimit(t *testing.T) {
	const ms = time.Millisecond
	for name, test := range map[string]struct {
		seen Evidence
		want string
	}{
		"policy": {Evidence{RateLimited: 1, Busy: 1}, "a policy's limit"},
		"system": {Evidence{Busy: 0.9, Server: 1200 * ms, Client: 500 * ms}, "more of it the system's (1.2 of 2 cores)"},
		"bench":  {Evidence{Busy: 0.9, Server: 500 * ms, Client: 1200 * ms}, "more of it the bench's (1.2 of 2 cores)"},
		"others": {Evidence{Busy: 1, Server: 300 * ms, Client: 200 * ms},
			"other programs' (1.5 of 2 cores; the system's 0.3, the bench's 0.2)"},
		"rate":    {Evidence{Rate: 100, Events: 96, Busy: 1, Appending: time.Second}, "the rate that was asked for"},
		"no rate": {Evidence{Rate: 100, Events: 90, Appending: time.Second}, "the disk"},
		"killed":  {Evidence{Rate: 100, Events: 90, Killed: true, Busy: 1}, "the takeover"},
		"in turn": {Evidence{InTurn: true}, "waiting for one answer after the other"},
		"disk": {Evidence{Appends: 800, Appending: 800 * ms, Sync: 900 * time.Microsecond},
			"the disk: 800 writes of the log, 1ms each (a sync alone takes 900µs)"},
		"MongoDB": {Evidence{Appends: 100, Appending: 900 * ms, Shared: true}, "MongoDB: 100 writes of the log, 9ms each"},
		"depth":   {Evidence{Busy: 0.3}, "waiting for answers"},
	} {
		e := test.seen
		e.Took, e.Cores = time.Second, 2
		if got := e.Limit(); !strings.Contains(got, test.want) {
			t.Errorf("%s: %q, want %q in it", name, got, test.want)
		}
		if got := e.add(e).Limit(); name != "disk" && name != "MongoDB" && !strings.Contains(got, test.want) {
			t.Errorf("%s, in two rounds: %q", name, got)
		}
	}
}
