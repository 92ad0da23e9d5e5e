package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/controlplane/internal/store"
)

func TestAlive(t *testing.T) {
	var a store.Alive
	start := time.Unix(1000, 0)
	docs := []store.PresenceDoc{{Self: "a", Beat: 7}, {Self: "b", Beat: 1}}
	for _, step := range []struct {
		at   time.Duration
		beat int64 // of a
		want string
		gone string
	}{
		{0, 7, "a b ", "map[]"},
		{4 * time.Second, 8, "a b ", "map[]"},
		{5 * time.Second, 8, "a ", "map[b:1]"},
		{9 * time.Second, 8, "", "map[a:8 b:1]"},
		{10 * time.Second, 1, "a ", "map[b:1]"}, // a started over
	} {
		docs[0].Beat = step.beat
		var got string
		for _, d := range a.Of(docs, start.Add(step.at)) {
			got += d.Self + " "
		}
		if got != step.want {
			t.Errorf("after %v %q are alive, want %q", step.at, got, step.want)
		}
		if got := fmt.Sprint(a.Gone(start.Add(step.at), store.AliveFor)); got != step.gone {
			t.Errorf("after %v %s are gone, want %s", step.at, got, step.gone)
		}
	}
	if a.Of(docs[1:], start.Add(time.Hour)) != nil || len(a.Gone(start.Add(time.Hour), 0)) != 1 {
		t.Error("a document that is not there any more is remembered")
	}
}
