package controlplane

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

// socket is a WebSocket on which one request is asked at a time.
type socket struct {
	t    testing.TB
	conn *websocket.Conn
}

func (s app) dial(t testing.TB) socket {
	t.Helper()
	conn, _, err := websocket.Dial(t.Context(), "ws://"+s.Listen+"/ws", nil)
	require.NoError(t, err)
	t.Cleanup(func() { conn.CloseNow() })
	return socket{t, conn}
}

// ask sends a frame and reads its reply.
func (k socket) ask(frame string) object {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(k.t.Context(), testkit.Patience)
	defer cancel()
	if err := k.conn.Write(ctx, websocket.MessageText, []byte(frame)); err != nil {
		k.t.Fatal(err)
	}
	_, reply, err := k.conn.Read(ctx)
	if err != nil {
		k.t.Fatal(err)
	}
	return testkit.ParseObject(k.t, reply)
}

// perSecond is a fleet-wide policy.
func perSecond(rate float64, burst int, more string) string {
	return fmt.Sprintf(`{"publish":{"scope":"fleet","rate":%v,"burst":%d%s}}`, rate, burst, more)
}

// burst: a topic without publishes has its whole burst, however slowly it fills.
func TestFleetBurst(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.put(t, "*", `{"connection":{"rate":0}}`)
	s := p.sidecar(t, "s")
	// Until a sidecar has heard of the shares, it uses a part of its own.
	p.put(t, "any", perSecond(1000, 1000, ""))
	testkit.Eventually(t, "there are shares", func() bool { return s.batch(t, "any", 1000).Status == 200 })
	p.put(t, "t", perSecond(0.001, 5, ""))
	p.put(t, "u", perSecond(0.001, 5, ""))
	testkit.Eventually(t, "both hold", func() bool {
		names := ""
		for _, policy := range s.status(t).List("policies") {
			names += " " + policy.Text("name")
		}
		return strings.Contains(names+" ", " t u ")
	})
	accepted := 0
	for range 8 {
		if s.publish(t, "t").Status == 201 {
			accepted++
		}
	}
	if accepted != 5 {
		t.Errorf("%d of 8 were accepted, want the burst of 5", accepted)
	}
	if a := s.batch(t, "u", 5); a.Status != 200 {
		t.Errorf("a batch as large as the burst: %d %s", a.Status, a.Body)
	}
}

// rate_limited: "retry_after_ms, scope: connection, topic or fleet"; "HTTP adds Retry-After (whole
// seconds, rounded up)"; "retry_after_ms is a whole number".
func TestFleetRefusals(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.put(t, "*", `{"connection":{"rate":0}}`)
	p.put(t, "t", perSecond(0.5, 15, "")) // so slow that a loaded machine uses it up, and does not let it fill again
	s := p.sidecar(t, "s")
	var a testkit.Answer
	accepted := 0
	testkit.Eventually(t, "the rate of t is used up", func() bool {
		if a = s.publish(t, "t"); a.Status == 201 {
			accepted++
		}
		return a.Status != 201
	})
	if accepted == 0 {
		t.Error("nothing was accepted")
	}
	o := refused(t, "over the rate", a, 429, "rate_limited")
	ms := o.Number(t, "retry_after_ms")
	if o["scope"] != "fleet" || ms < 1 || a.Header.Get("Retry-After") != fmt.Sprint((ms+999)/1000) {
		t.Errorf("%s, Retry-After %q", a.Body, a.Header.Get("Retry-After"))
	}
	k := s.dial(t)
	testkit.Eventually(t, "the same over a WebSocket", func() bool {
		o = k.ask(`{"op":"PUBLISH","corr":"c","topic":"t","payload":1}`)
		return o["op"] != "OK"
	})
	limited := o.Has(testkit.Members{"op": "ERR", "corr": "c", "code": "rate_limited", "scope": "fleet"})
	if !limited || o.Number(t, "retry_after_ms") < 1 || o.Text("msg") == "" {
		t.Errorf("%v", o)
	}
	// "a batch … is refused with one error", "all or nothing".
	refused(t, "a batch", s.batch(t, "t", 15), 429, "rate_limited")
	o = k.ask(`{"op":"PUBLISH","topic":"t","events":[` + strings.Repeat(`{"payload":1},`, 14) + `{"payload":1}]}`)
	if o["code"] != "rate_limited" || o["scope"] != "fleet" {
		t.Errorf("%v", o)
	}
	metrics := string(testkit.Call(t, "GET", s.OpsURL()+"/metrics", "").Body)
	if !strings.Contains(metrics, `sluice_events_rejected_total{code="rate_limited",topic="t"}`) {
		t.Error("the refusals are not counted")
	}
	// The wait that it was told is enough, give or take a round trip.
	testkit.Eventually(t, "a publish after the refusals", func() bool { return s.publish(t, "t").Status == 201 })
}

// "a batch larger than the burst is bad_request naming the burst".
func TestFleetBatchBeyondTheBurst(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.put(t, "*", `{"connection":{"rate":0}}`)
	p.put(t, "t", perSecond(50, 17, ""))
	s := p.sidecar(t, "s")
	a := s.batch(t, "t", 18)
	if o := refused(t, "18", a, 400, "bad_request"); !strings.Contains(o.Text("error"), "17") {
		t.Errorf("%s", a.Body)
	}
	k := s.dial(t)
	o := k.ask(`{"op":"PUBLISH","topic":"t","events":[` + strings.Repeat(`{"payload":1},`, 17) + `{"payload":1}]}`)
	if o["code"] != "bad_request" || !strings.Contains(o.Text("msg"), "17") {
		t.Errorf("%v", o)
	}
	testkit.Eventually(t, "a batch as large as the burst", func() bool {
		a = s.batch(t, "t", 17)
		return a.Status == 200
	})
	var results struct{ Results []struct{ ID string } }
	if err := json.Unmarshal(a.Body, &results); err != nil || len(results.Results) != 17 {
		t.Errorf("%v %s", err, a.Body)
	}
}

// "on_limit: wait" with "scope: fleet": a publish waits for its token up to max_wait, and is
// refused in the fleet's name after that.
func TestFleetWait(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.put(t, "*", `{"connection":{"rate":0}}`)
	p.put(t, "patient", perSecond(20, 5, `,"on_limit":"wait","max_wait":"50s"`))
	p.put(t, "hasty", perSecond(0.01, 1, `,"on_limit":"wait","max_wait":"10ms"`))
	s := p.sidecar(t, "s")
	began := time.Now()
	for i := range 30 {
		if a := s.publish(t, "patient"); a.Status != 201 {
			t.Errorf("%d: %d %s", i, a.Status, a.Body)
		}
	}
	// 5 at once, and some more that the bound allows; the rest at 20/s.
	if took := time.Since(began); took < 500*time.Millisecond {
		t.Errorf("30 publishes at 20/s with a burst of 5 took %v", took)
	}
	testkit.Eventually(t, "the hasty are refused", func() bool {
		a := s.publish(t, "hasty")
		if a.Status == 201 {
			return false
		}
		if o := refused(t, "hasty", a, 429, "rate_limited"); o["scope"] != "fleet" {
			t.Errorf("%s", a.Body)
		}
		return true
	})
}

// "scope: fleet makes rate the total for all sidecars together: … within 10 % of rate × time (plus
// burst), within 2 s of a change in where the load is", as its beginning is.
func TestFleetTotal(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.put(t, "*", `{"connection":{"rate":0}}`)
	const rate, burst = 40, 20
	p.put(t, "t", perSecond(rate, burst, ""))
	sidecars := []app{p.sidecar(t, "s0"), p.sidecar(t, "s1")}
	load := func(d time.Duration) (accepted [2]int, took float64) {
		began := time.Now()
		for time.Since(began) < d {
			for i, s := range sidecars {
				if s.publish(t, "t").Status == 201 {
					accepted[i]++
				}
			}
		}
		return accepted, time.Since(began).Seconds()
	}
	first, took := load(2 * time.Second)
	t.Logf("%v accepted in the first %.1f s", first, took)
	const window = 3 * time.Second
	began := time.Now()
	testkit.Eventually(t, "both accept some, and together no more than the rate", func() bool {
		accepted, took := load(window)
		t.Logf("%v accepted in the next %.1f s", accepted, took)
		return accepted[0] > 0 && accepted[1] > 0 && float64(accepted[0]+accepted[1]) <= burst+1.1*rate*took
	})
	if took := time.Since(began); took > window+slack {
		t.Errorf("only after %v", took)
	}
}

// TestIdleTopicsStayAfterARestart: topics that exist are listed, also while nothing is published and after the control plane was
// restarted, until they are deleted.
func TestIdleTopicsStayAfterARestart(t *testing.T) {
	t.Parallel()
	data := []string{"--data-dir", t.TempDir()}
	p := plane{testkit.StartControlPlane(t, data...)}
	s := p.sidecar(t, "s")
	s.publish(t, "idle.topic")
	wants := func(what, names string) {
		t.Helper()
		testkit.Eventually(t, what, func() bool {
			listed := ""
			for _, topic := range p.get(t, "/v1/topics").List("topics") {
				listed += topic.Text("topic") + " "
			}
			return listed == names
		})
	}
	wants("the topic is listed", "idle.topic ")
	require.NoError(t, p.Stop(t.Context()))
	p = plane{testkit.StartControlPlane(t, append(data, "--xds-listen", p.XDS())...)}
	wants("the topic is listed after a restart", "idle.topic ")
	if a := testkit.Call(t, "DELETE", s.URL()+"/v1/topics/idle.topic", ""); a.Status != 204 {
		t.Fatalf("deleting it: %d %s", a.Status, a.Body)
	}
	wants("the deleted topic is gone", "")
}
