package fleet_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/controlplane/internal/fleet"
	"github.com/sluice-bus/sluice/test/require"
)

func wantTopics(t *testing.T, r *fleet.Registry, want ...string) {
	t.Helper()
	var got []string
	for _, topic := range r.Topics(false) {
		got = append(got, topic.Topic)
	}
	if !slices.Equal(got, want) {
		t.Errorf("topics %q, want %q", got, want)
	}
}

func TestTopicsThatExistAreShownWhileIdle(t *testing.T) {
	r, c := newRegistry("cp1")
	r.SetTopics("s1", []string{"idle", "used"})
	r.SetTopics("s2", []string{"idle"})
	r.Usage("a", "used", 100, 0, c.at)
	r.Usage("a", "refused", 0, 1, c.at)
	wantTopics(t, r, "idle", "refused", "used")
	if got := topic(t, r, "idle"); len(got.Sidecars) != 0 || got.AllowedPerSecond != 0 {
		t.Errorf("an idle topic: %+v", got)
	}
	r.ChangeTopics("s1", []string{"new"}, []string{"idle", "used", "never"})
	wantTopics(t, r, "idle", "new", "refused")
	r.SetTopics("s2", []string{"other"})
	wantTopics(t, r, "new", "other", "refused")
	c.pass(time.Hour)
	wantTopics(t, r, "new", "other")
}

// A control plane that has just started may hear of a topic's use before it hears that the topic is gone.
func TestUsedTopicsThatTheirStoreHasNotAreForgotten(t *testing.T) {
	r, c := newRegistry("cp1")
	connect(t, r, "a", "i1")
	r.Usage("a", "deleted", 1, 0, c.at)
	r.Usage("b", "of another store", 1, 0, c.at)
	wantTopics(t, r, "deleted", "of another store")
	r.SetTopics("s1", []string{"kept"})
	wantTopics(t, r, "kept", "of another store")
}

func TestTopicsOfAStoreStayAsLongAsASidecarIsKnown(t *testing.T) {
	r, c := newRegistry("cp1")
	r.SetTopics("s1", []string{"x"}) // its stream may be there before that of xDS
	wantTopics(t, r, "x")
	s := connect(t, r, "a", "i1")
	r.EndTopics("s1")
	s.Close()
	c.pass(2 * fleet.KeepDisconnected)
	wantTopics(t, r, "x") // it is missing
	r.Drained(fleet.Node{ID: "a", Instance: "i1", StoreID: "s1"})
	wantTopics(t, r)
}

func TestOtherControlPlanesShowTopicsThatExistToo(t *testing.T) {
	a, _ := newRegistry("cp1")
	b, _ := newRegistry("cp2")
	a.SetTopics("s1", []string{"x", "y"})
	b.SetTopics("s2", []string{"y", "z"})
	require.NoError(t, b.Merge("cp2", [][]byte{a.Export()}))
	wantTopics(t, b, "x", "y", "z")
	require.NoError(t, b.Merge("cp2", nil))
	wantTopics(t, b, "y", "z")
}

func TestTopicsBeyondTheBoundAreCounted(t *testing.T) {
	r, _ := newRegistry("cp1")
	var names []string
	for i := range fleet.MaxExisting + 3 {
		names = append(names, fmt.Sprint("t", i))
	}
	r.SetTopics("s1", names)
	r.SetTopics("s2", names[:10])
	if got, left := len(r.Topics(false)), r.Uncounted(); got != fleet.MaxExisting || left != 3 {
		t.Errorf("%d topics and %d uncounted, want %d and 3", got, left, fleet.MaxExisting)
	}
	r.ChangeTopics("s1", []string{"late"}, names[20:30])
	if got := topic(t, r, "late"); got.Topic != "late" {
		t.Errorf("there is no room after topics were deleted")
	}
}

func BenchmarkSetTopics(b *testing.B) {
	r, _ := newRegistry("cp1")
	names := make([]string, 10_000)
	for i := range names {
		names[i] = fmt.Sprint("orders.created.", i)
	}
	b.ReportAllocs()
	for i := range b.N {
		r.SetTopics(fmt.Sprint("s", i%100), names)
	}
}
