package control

import (
	"context"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/sluice-bus/sluice/sidecar/internal/xds/xdstest"
)

// Policies of an earlier life may limit publishes, but not remove events, while the control plane
// may send others.
func TestConfirmed(t *testing.T) {
	p := newPlane(t)
	p.put(map[string]int64{"*": 1, "t": 2})
	p.Start()
	dir := t.TempDir()
	keep := func(cfg *settings) { cfg.Dir = dir }
	s := start(t, p, keep)
	if s.sync(t); !s.Confirmed() {
		t.Error("what has come in this life is not confirmed")
	}
	s.stop()
	p.Stop()
	s = start(t, p, keep)
	xdstest.Soon(t, "a failure to connect", func() bool { return s.Status().Error != "" })
	if !s.Cached() || s.Confirmed() {
		t.Errorf("cached %v, confirmed %v; want what was kept in force, and it not to be confirmed", s.Cached(), s.Confirmed())
	}
	p.Start()
	xdstest.Soon(t, "what the control plane says", s.Confirmed)
	s.stop()
	p.Stop()
	s = open(t, p, keep)
	s.opened = s.opened.Add(-confirmedAfter)
	if !s.Confirmed() {
		t.Error("no control plane for long, and what was kept is not confirmed")
	}
}

// A shared store may be reached only after the control plane was.
func TestTheStoreIsToldOnceItIsKnown(t *testing.T) {
	p := newPlane(t)
	p.put(map[string]int64{"*": 1})
	p.Start()
	id := make(chan string, 1)
	id <- ""
	s := start(t, p, func(cfg *settings) {
		cfg.StoreID = func() string {
			now := <-id
			id <- now
			return now
		}
	})
	s.sync(t)
	<-id
	id <- "s7"
	xdstest.Soon(t, "the store's id", func() bool {
		return len(p.Requests(func(r *discoveryv3.DeltaDiscoveryRequest) bool {
			return r.GetNode().GetMetadata().GetFields()["store_id"].GetStringValue() == "s7"
		})) > 0
	})
	subscribed := p.Requests(func(r *discoveryv3.DeltaDiscoveryRequest) bool {
		return r.GetTypeUrl() == packType && len(r.GetResourceNamesSubscribe()) > 0
	})
	if len(subscribed) != 1 {
		t.Errorf("%d streams: between two the control plane shows the sidecar as missing", len(subscribed))
	}
}

// A start that has kept policies goes by the control plane's if that is there.
func TestSettled(t *testing.T) {
	p := newPlane(t)
	p.put(map[string]int64{"*": 1, "gone": 2, "t": 3})
	p.Start()
	dir := t.TempDir()
	keep := func(cfg *settings) { cfg.Dir = dir }
	s := start(t, p, keep)
	s.sync(t)
	s.stop()
	p.Stop()
	p.put(map[string]int64{"*": 4, "gone": 0, "t": 5})
	s = start(t, p, keep)
	began := time.Now()
	s.AwaitSyncedOrAway(context.Background())
	if took := time.Since(began); took > 30*time.Second || s.version("gone") != 2 {
		t.Errorf("without a control plane: %v, and version %d", took, s.version("gone"))
	}
	s.stop()
	p.Start()
	s = start(t, p, keep)
	s.AwaitSyncedOrAway(context.Background())
	if s.version("gone") != 4 || s.version("t") != 5 {
		t.Errorf("settled, and what is in force is %+v", s.Policies().Load().List())
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	open(t, p, keep).AwaitSyncedOrAway(ctx)
}
