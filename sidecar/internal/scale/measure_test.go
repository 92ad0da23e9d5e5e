package scale

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/test/require"
)

// figure is one number of the report.
type figure struct {
	Name  string  `json:"name"`
	Unit  string  `json:"unit"`
	Value float64 `json:"value"`
}

type report []figure

func (r *report) add(unit string, value float64, name string, args ...any) {
	*r = append(*r, figure{fmt.Sprintf(name, args...), unit, value})
}

func (r *report) seconds(d time.Duration, name string) { r.add("s", d.Seconds(), "%s", name) }
func (r *report) mib(bytes int64, name string)         { r.add("MiB", float64(bytes)/(1<<20), "%s", name) }
func (r *report) kib(bytes int64, name string)         { r.add("KiB", float64(bytes)/(1<<10), "%s", name) }

// percentiles reports what many took.
func (r *report) percentiles(took []time.Duration, name string) {
	slices.Sort(took)
	for _, p := range []struct {
		name string
		at   int
	}{{"p50", len(took) / 2}, {"p99", len(took) * 99 / 100}, {"max", len(took) - 1}} {
		r.add("ms", float64(took[p.at].Microseconds())/1000, "%s, %s", name, p.name)
	}
}

func (r report) String() string {
	var text strings.Builder
	for _, f := range r {
		fmt.Fprintf(&text, "%-72s %10.2f %s\n", f.Name, f.Value, f.Unit)
	}
	return text.String()
}

// TestMeasure reports times, memory and processor time. It asserts none of them: they are those of
// this machine, and of what else runs on it.
func TestMeasure(t *testing.T) {
	p := startPlane(t)
	var r report
	r.add("", float64(*sidecars), "sidecars, each with %d topics", inUse)
	r.add("", float64(*policies), "policies")
	empty, _ := p.memory(t)
	r.mib(empty, "control plane, resident with its policies and no sidecar")
	before := memory()
	f := newFleet(t, p)
	measureStart(t, p, f, &r)
	r.kib((memory()-before)/int64(len(f.list)), "memory of a sidecar's client, the test's own included")

	measureIdle(t, p, f, &r)
	for _, of := range []struct{ what, name string }{{"a topic", hot}, {"a glob", changedGlob}} {
		measureChanges(t, p, f, of.what, of.name, &r)
	}
	measureSteady(t, p, f, &r)
	now, most := p.memory(t)
	r.mib(now, "control plane, resident after the changes")
	r.mib(most, "control plane, resident at most in its first life")
	r.kib((now-empty)/int64(len(f.list)), "control plane, resident for each sidecar")
	measureRestart(t, p, f, &r)

	t.Logf("\n%v", r)
	if *jsonFile != "" {
		text, err := json.MarshalIndent(r, "", "  ")
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(*jsonFile, append(text, '\n'), 0o600))
	}
}

// measureStart connects all sidecars at once.
func measureStart(t *testing.T, p *plane, f *fleet, r *report) {
	t.Helper()
	cpu, mine, began := p.cpu(t), ownCPU(t), time.Now()
	f.start(t)
	f.awaitSynced(t)
	r.seconds(time.Since(began), "cold start: until all sidecars know all policies")
	f.awaitPeers(t)
	r.seconds(time.Since(began), "cold start: until all sidecars know all others, too")
	r.seconds(p.cpu(t)-cpu, "cold start: processor time of the control plane until then")
	r.seconds(ownCPU(t)-mine, "cold start: processor time of all the sidecars until then")
	reportTraffic(r, f.seen(), "cold start")
}

// reportTraffic adds what the average sidecar was sent and has sent.
func reportTraffic(r *report, all []seen, when string) {
	var sum seen
	for _, s := range all {
		sum.read, sum.written = sum.read+s.read, sum.written+s.written
		for i := range sum.names {
			sum.names[i] += s.names[i]
		}
	}
	n := int64(len(all))
	r.kib(sum.read/n, when+": received by a sidecar")
	r.kib(sum.written/n, when+": sent by a sidecar")
	for i, kind := range []string{"policies", "groups of peers"} {
		r.add("", float64(sum.names[i])/float64(n), "%s: responses and resources with %s for a sidecar", when, kind)
	}
}

// window is for how long processor time is counted: some times the second in which sidecars report.
func window() time.Duration { return time.Duration(max(2, min(*rounds/5, 20))) * time.Second }

// measureIdle has everybody connected and reporting, and nothing changes.
func measureIdle(t *testing.T, p *plane, f *fleet, r *report) {
	t.Helper()
	before, cpu := f.seen(), p.cpu(t)
	time.Sleep(window()) // what is measured
	r.add("% of a core", 100*(p.cpu(t)-cpu).Seconds()/window().Seconds(), "idle, with a usage report of all topics each second: control plane")
	now, _ := p.memory(t)
	r.mib(now, "control plane, resident with all sidecars connected")
	var sum int64
	for _, s := range f.since(before) {
		sum += s.read
	}
	r.add("B/s", float64(sum)/float64(len(f.list))/window().Seconds(), "idle: received by a sidecar")
}

// measureChanges makes changes one after another. Every fifth is followed to its ACKs; to ask for
// those costs more than the change.
func measureChanges(t *testing.T, p *plane, f *fleet, what, name string, r *report) {
	t.Helper()
	var acts, shown []time.Duration
	var cpu, mine time.Duration
	for i := range *rounds {
		then, own := p.cpu(t), ownCPU(t)
		rate, _, at := p.put(t, name)
		acts = append(acts, awaitRate(t, f.list, name, rate).Sub(at))
		time.Sleep(apart)
		cpu, mine = cpu+p.cpu(t)-then, mine+ownCPU(t)-own
		if i%5 == 0 {
			rate, version, at := p.put(t, name)
			awaitRate(t, f.list, name, rate)
			awaitAcks(t, p, name, version, len(f.list))
			shown = append(shown, time.Since(at))
			time.Sleep(apart)
		}
	}
	r.percentiles(acts, "PUT to in force at the last one, "+what)
	r.percentiles(shown, "PUT until GET /v1/sidecars has shown the last ACK, "+what)
	n := time.Duration(*rounds)
	r.add("ms", float64((cpu/n).Microseconds())/1000, "processor time of the control plane for each of these")
	r.add("ms", float64((mine/n).Microseconds())/1000, "processor time of all the sidecars for each of these")
}

// apart is the time between two changes: those closer to each other are sent together.
const apart = 100 * time.Millisecond

// ownCPU is the processor time that this process has used.
func ownCPU(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// measureSteady makes a change a second.
func measureSteady(t *testing.T, p *plane, f *fleet, r *report) {
	t.Helper()
	cpu, began := p.cpu(t), time.Now()
	n := 0
	for ; time.Since(began) < window(); n++ {
		rate, _, at := p.put(t, hot)
		awaitRate(t, f.list, hot, rate)
		time.Sleep(time.Until(at.Add(time.Second)))
	}
	r.add("% of a core", 100*(p.cpu(t)-cpu).Seconds()/time.Since(began).Seconds(), "one PUT a second: control plane")
}

// measureRestart has all sidecars come back at once.
func measureRestart(t *testing.T, p *plane, f *fleet, r *report) {
	t.Helper()
	p.Kill()
	f.awaitConnected(t, false)
	before, began := f.seen(), time.Now()
	p.restart(t, false)
	r.seconds(time.Since(began), "kill -9 and restart: until the control plane is ready")
	ready := time.Now()
	f.awaitConnected(t, true)
	r.seconds(time.Since(ready), "kill -9 and restart: from then until all sidecars are connected")
	rate, version, at := p.put(t, hot)
	last := awaitRate(t, f.list, hot, rate)
	awaitAcks(t, p, hot, version, len(f.list))
	r.add("ms", float64(last.Sub(at).Microseconds())/1000, "kill -9 and restart: PUT to in force for all, at once after that")
	if *sidecars >= 500 { // peers are told of each other a while after policies
		time.Sleep(20 * time.Second)
	}
	f.awaitPeers(t)
	r.seconds(p.cpu(t), "kill -9 and restart: processor time of the control plane, start included")
	_, most := p.memory(t)
	r.mib(most, "kill -9 and restart: control plane, resident at most")
	reportTraffic(r, f.since(before), "kill -9 and restart")
}
