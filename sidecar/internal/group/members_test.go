package group

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/group/dispatch"
)

// Each sidecar shows the members of all, as they were 10 s ago at the most, and names the sidecars
// that did not say.
func TestMembersOfTheStore(t *testing.T) {
	runFleet(t, 4, func(t *testing.T, f *fleet) {
		a, b, c := f.start("a"), f.start("b"), f.start("c")
		joined := time.Now().UnixMilli()
		from := func(address string) option { return func(s *Subscription) { s.Address = address } }
		ca, cb := a.join(from("10.0.0.1:1")), b.join(from("10.0.0.2:2"), window(1))
		advance(lease)
		f.publishN(20)
		advance(descriptionValid)
		for _, s := range []*sidecar{a, b, c} {
			info := s.info()
			byNode := map[string]wire.GroupMember{}
			for _, m := range info.Members {
				byNode[m.NodeID] = m
			}
			inflight := 0
			for at, client := range map[string]*client{"a": ca, "b": cb} {
				m := byNode[at]
				inflight += client.waiting()
				held := descriptionValid.Milliseconds()
				right := m.Inflight == client.waiting() && m.Since == joined && m.OldestUnackedMS <= held && m.OldestUnackedMS > 0
				if !right || m.BlockedBy == nil {
					t.Errorf("%s shows at %s %+v; want %d in flight", s.name, at, m, client.waiting())
				}
			}
			if len(info.Members) != 2 || info.Missing != nil || info.Inflight != inflight {
				t.Errorf("%s shows %+v; want two members, and %d in flight", s.name, info, inflight)
			}
			if m := byNode["b"]; *m.BlockedBy != dispatch.BlockedMaxInflight || m.Address != "10.0.0.2:2" || m.MaxInflight != 1 {
				t.Errorf("%s shows %+v at b", s.name, m)
			}
		}
		err := c.m.Unused(context.Background(), topic)
		if refused := wire.AsError(err); refused.Code != wire.InUse || !strings.Contains(refused.Msg, `(10.0.0.1:1) at sidecar "a"`) {
			t.Errorf("in use: %v", err)
		}
		a.path.fail(errStore)
		advance(descriptionValid + time.Millisecond)
		if info := b.info(); len(info.Members) == 2 {
			t.Errorf("b shows %+v of a, which has said nothing for %v", info, descriptionValid)
		}
		a.path.fail(nil)
		advance(lease)
		ca.leave(Unsubscribed)
		advance(lease / 2)
		if info := c.info(); len(info.Members) != 1 || info.Missing != nil {
			t.Errorf("after a has left: %+v", info)
		}
	})
}

// A node that has not described its members lately, or not those of the group, is missing.
func TestMissingMembers(t *testing.T) {
	runFleet(t, 1, func(t *testing.T, f *fleet) {
		a := f.start("a")
		a.join()
		g := eventlog.GroupName{Topic: topic, Group: "g"}
		for i, members := range [][]eventlog.NodeMembers{nil, {{GroupName: g, Members: make([]wire.GroupMember, 2), More: 3}}} {
			n := eventlog.Node{ID: fmt.Sprint("x/1/", i), Name: fmt.Sprint("x", i), Beat: 1, Lease: time.Hour, Version: 1,
				Groups: []eventlog.GroupName{g}, Members: members}
			if err := f.nodes.SaveNode(t.Context(), n); err != nil {
				t.Fatal(err)
			}
		}
		if info := a.info(); fmt.Sprint(info.Missing) != "[x0]" || len(info.Members) != 3 || info.More != 3 {
			t.Errorf("%+v", info)
		}
		advance(descriptionValid + time.Second)
		if info := a.info(); fmt.Sprint(info.Missing) != "[x0 x1]" || len(info.Members) != 1 || info.More != 0 {
			t.Errorf("later: %+v", info)
		}
	})
}

// A node describes no more members than there is room for in its document, and counts the others.
func TestMostMembersDescribed(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		for range eventlog.MaxMembers + 5 {
			w.subscribe(&fakeSink{}, earliest)
		}
		all := w.m.describe()
		if len(all) != 1 || len(all[0].Members) != eventlog.MaxMembers || all[0].More != 5 {
			t.Errorf("%d groups, %d members and %d more", len(all), len(all[0].Members), all[0].More)
		}
	})
}
