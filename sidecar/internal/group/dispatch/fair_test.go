package dispatch

import (
	"strconv"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

func TestIdleTenantsAreForgotten(t *testing.T) {
	d, now, eff := New(testConfig()), time.Unix(1e9, 0), policy.Defaults()
	eff.Delivery.Fairness.By = "header:tenant"
	d.Load(1)
	p := d.Parts[0]
	p.Next, p.Open = 1, true
	d.Retune(&eff, 1, 1, now)
	m := NewMember("c", wire.SubscribeOptions{MaxInflight: new(1)}, alwaysReady{}, nil, alwaysReady{}, nil)
	m.Started = true
	d.Join(m)
	seq := uint64(0)
	fetch := func(tenant string) {
		seq++
		rec := &eventlog.Record{}
		rec.Seq, rec.ID, rec.Headers = seq, strconv.FormatUint(seq, 10), wire.Headers{{Name: "tenant", Value: tenant}}
		d.Admit(p.Fetched(rec), false, now)
	}
	for range 50 {
		fetch("stays")
	}
	d.Assign(now)
	for i := range 3 * maxIdleTenants {
		fetch(strconv.Itoa(i))
		d.Saved()
		d.Settle(d.Send(m, now)[0].Entry)
		d.Assign(now)
	}
	if n := len(d.fair.flows); n > maxIdleTenants+100 {
		t.Errorf("%d tenants are remembered", n)
	}
}
