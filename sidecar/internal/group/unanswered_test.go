package group

import (
	"fmt"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// A store that is away for a minute costs the log one line at its begin and one at its end, however many groups ask meanwhile, and
// whichever of them goes.
func TestOutageIsLoggedOnce(t *testing.T) {
	runFleet(t, 4, func(t *testing.T, f *fleet) {
		s := f.start("a")
		const groups = 20
		var members []*client
		for i := range groups {
			members = append(members, s.join(func(sub *Subscription) { sub.Group = fmt.Sprint("g", i) }))
		}
		for round := range 2 {
			s.path.fail(errStore)
			advance(time.Minute)
			for i := range groups {
				s.m.Moved([]eventlog.GroupName{{Topic: topic, Group: fmt.Sprint("g", i)}})
			}
			advance(time.Minute)
			if n := s.logs.Count("cannot ask who owns"); n != round+1 {
				t.Errorf("%d lines at the begin of %d outages:\n%s", n, round+1, s.logs.String())
			}
			members[round].leave(Unsubscribed)
			if s.logs.Count("know again") != round {
				t.Errorf("the outage has not ended yet:\n%s", s.logs.String())
			}
			s.path.fail(nil)
			advance(time.Minute)
			if n := s.logs.Count("know again who owns their partitions\" groups=20"); n != round+1 {
				t.Errorf("%d lines at the end of %d outages:\n%s", n, round+1, s.logs.String())
			}
		}
	})
}
