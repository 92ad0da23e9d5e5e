package controlplane

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/test/mongotest"
	"github.com/sluice-bus/sluice/test/testkit"
)

// incident is the open incident of a kind; nil: there is none.
func (p plane) incident(t testing.TB, kind string) object {
	t.Helper()
	for _, i := range p.get(t, "/v1/overview").List("incidents") {
		if i.Text("kind") == kind {
			return i
		}
	}
	return nil
}

// begins waits until there is an incident of a kind, and checks what is in it.
func (p plane) begins(t testing.TB, kind string, want testkit.Members) {
	t.Helper()
	var found object
	testkit.Eventually(t, kind+" begins", func() bool { found = p.incident(t, kind); return found != nil })
	since, err := time.Parse(time.RFC3339, found.Text("since"))
	if !found.Has(want) || err != nil || time.Since(since) > time.Hour || found.Text("text") == "" || found.Text("remedy") == "" {
		t.Errorf("got %v, want %v", found, want)
	}
}

func (p plane) ends(t testing.TB, kind string) {
	t.Helper()
	testkit.Eventually(t, kind+" ends", func() bool { return p.incident(t, kind) == nil })
}

// Incidents of an application: refused publishes and dead letters.
func TestIncidentsOfAnApplication(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.put(t, "orders", `{"publish":{"rate":5,"burst":5},"delivery":{"max_attempts":1}}`)
	s := p.sidecar(t, "shop-1")
	testkit.Eventually(t, "all is well", func() bool {
		o := p.get(t, "/v1/overview")
		return o.Number(t, "sidecars.live") == 1 && o.Number(t, "stores") == 1 && len(o.List("incidents")) == 0
	})
	testkit.Eventually(t, "publishes are refused", func() bool {
		s.publish(t, "orders")
		return p.incident(t, "refused") != nil
	})
	p.begins(t, "refused", testkit.Members{"topic": "orders", "severity": "warning"})

	group := s.URL() + "/v1/topics/orders/groups/billing"
	pulled := testkit.Call(t, "POST", group+"/pull", `{"max":1,"wait_ms":5000,"opts":{"from":"earliest"}}`).JSON(t)
	lease := pulled.List("events")[0].Text("ctx.lease")
	if a := testkit.Call(t, "POST", group+"/nack", fmt.Sprintf(`{"leases":[%q]}`, lease)); a.Status != 200 {
		t.Fatalf("nack: %d %s", a.Status, a.Body)
	}
	p.begins(t, "dead_letters", testkit.Members{"topic": "orders", "group": "billing"})
	detail := p.get(t, "/v1/sidecars/shop-1")
	known := testkit.Members{"store.kind": "embedded", "store.state": "ok", "connected": "true"}
	if !detail.Has(known) || detail.Number(t, "memory.bound") == 0 ||
		detail.Number(t, "uptime_s") > 3600 || detail.List("groups")[0].Text("group") != "billing" {
		t.Errorf("got %v", detail)
	}
	a := testkit.Call(t, "POST", s.URL()+"/v1/topics/orders/dlq/discard", `{"group":"billing"}`)
	if a.Status != 200 || !strings.Contains(string(a.Body), `"ok":true`) {
		t.Fatalf("discard: %d %s", a.Status, a.Body)
	}
	p.ends(t, "dead_letters")
	p.ends(t, "refused")
}

// A sidecar on a shared store that goes away and comes back, and one that is killed.
func TestIncidentsOfASharedStore(t *testing.T) {
	t.Parallel()
	db := mongotest.Start(t)
	if !db.CanStop() {
		t.Skip("this server cannot be stopped")
	}
	p := start(t)
	s := p.sidecar(t, "shop-1", "--store", db.URI(db.NewDatabase(t)), "--store-timeout", "1s")
	s.publish(t, "orders")
	testkit.Eventually(t, "the store is known", func() bool { return len(p.get(t, "/v1/stores").List("stores")) == 1 })
	db.Kill()
	testkit.Eventually(t, "the store is away", func() bool { return s.publish(t, "orders").JSON(t).Text("durability") == "spool" })
	store := p.get(t, "/v1/stores").List("stores")[0].Text("store")
	p.begins(t, "store_away", testkit.Members{"store": store, "severity": "critical"})
	p.begins(t, "spooling", testkit.Members{"store": store})
	one := p.get(t, "/v1/stores").List("stores")[0]
	if !one.Has(testkit.Members{"kind": "mongodb", "state": "away"}) || one.Number(t, "spooled") == 0 {
		t.Errorf("got %v", one)
	}
	detail := p.get(t, "/v1/sidecars/shop-1")
	if oldest, err := time.Parse(time.RFC3339, detail.Text("spool.oldest")); err != nil || time.Since(oldest) > time.Hour ||
		!strings.Contains(fmt.Sprint(detail["log"]), "the store is away") {
		t.Errorf("got %v", detail)
	}
	db.Restart()
	p.ends(t, "store_away")
	p.ends(t, "spooling")

	s.Kill()
	p.begins(t, "sidecar_missing", testkit.Members{"node_id": "shop-1"})
	if a := p.call(t, "DELETE", "/v1/sidecars/shop-1", ""); a.Status != 204 {
		t.Fatalf("forget: %d %s", a.Status, a.Body)
	}
	p.ends(t, "sidecar_missing")
}
