package quota

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	rlqs "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/internal/policypb"
	"github.com/sluice-bus/sluice/test/require"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// newServer makes a server of a fleet-wide rate, past its grace.
func newServer(rate float64, burst int, now *time.Time) *Server {
	*now = epoch
	s := New(Config{
		Policies: func(topic string) (policy.Publish, bool) {
			return policy.Publish{Rate: rate, Burst: burst}, strings.HasPrefix(topic, "fleet")
		},
		Now: func() time.Time { return *now },
	})
	*now = epoch.Add(time.Minute)
	return s
}

func newMember(name string) *stream {
	return &stream{node: name, instance: name, ready: make(chan struct{}, 1), waiting: map[string]*answer{}, topics: map[string]bool{}}
}

// Rates that may act never add up to more than the rate, nor tokens that may be there to more than
// burst and slack, with any reports of sidecars.
func TestEntitlementsStayWithinTheRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var now time.Time
		rate := rapid.SampledFrom([]float64{0.5, 3, 100, 1e6}).Draw(t, "rate")
		burst := rapid.IntRange(1, 300).Draw(t, "burst")
		s := newServer(rate, burst, &now)
		streams := make([]*stream, rapid.IntRange(1, 8).Draw(t, "sidecars"))
		shares := make([]string, len(streams))
		for i := range streams {
			streams[i] = newMember(fmt.Sprint(i))
		}
		for k := range rapid.IntRange(1, 100).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 400).Draw(t, "pause")) * time.Millisecond)
			i := rapid.IntRange(0, len(streams)-1).Draw(t, "sidecar")
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0:
				s.detach(streams[i], rapid.Bool().Draw(t, "in order"))
				streams[i], shares[i] = newMember(fmt.Sprint(i)), ""
			case 1, 2: // it gets what was said
				if a := streams[i].waiting["fleet"]; a != nil {
					shares[i] = a.share
					delete(streams[i].waiting, "fleet")
				}
			default:
				u := usage{
					topic: "fleet", report: uint64(k), share: shares[i], elapsed: 200 * time.Millisecond, left: -1,
					allowed: uint64(rapid.IntRange(0, 100).Draw(t, "allowed")), denied: uint64(rapid.IntRange(0, 100).Draw(t, "denied")),
					wants: rapid.IntRange(0, burst).Draw(t, "wants"), ask: rapid.IntRange(0, 3).Draw(t, "ask"),
					back: rapid.Float64Range(0, 1000).Draw(t, "back"),
				}
				s.share(streams[i], &u, now)
			}
			s.rounds(now)
			p := s.topics["fleet"]
			if p == nil {
				continue
			}
			p.settle(now)
			if p.rates > rate*(1+1e-9) {
				t.Fatalf("%v may act of a rate of %v", p.rates, rate)
			}
			if there, most := p.reservoir+p.bursts, float64(burst)+max(1, rate/4); there > most*(1+1e-9) || p.reservoir < 0 {
				t.Fatalf("%v tokens may be there (%v in the reservoir), at most %v are allowed", there, p.reservoir, most)
			}
		}
	})
}

// Whatever one sidecar reports, each other one soon has the share of one, and who reports more than the policy allows is
// named once.
func TestForgedReportsStarveNobody(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var now time.Time
		rate := rapid.SampledFrom([]float64{100, 5000}).Draw(t, "rate")
		s := newServer(rate, int(rate), &now)
		var log bytes.Buffer
		s.cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		honest := make([]*stream, rapid.IntRange(1, 5).Draw(t, "honest ones"))
		shares := make([]string, len(honest))
		for i := range honest {
			honest[i] = newMember(fmt.Sprint(i))
		}
		mallory := newMember("mallory")
		figure := rapid.SampledFrom([]float64{0, 1, rate, 2 * rate, math.MaxUint32})
		over := false
		for k := range 80 {
			now = now.Add(100 * time.Millisecond)
			if rapid.Bool().Draw(t, "another life") {
				s.detach(mallory, rapid.Bool().Draw(t, "in order"))
				mallory = &stream{node: "mallory", instance: fmt.Sprint(k), ready: make(chan struct{}, 1), waiting: map[string]*answer{},
					topics: map[string]bool{}}
			}
			forged := usage{
				topic: "fleet", report: uint64(k), elapsed: 100 * time.Millisecond, left: -1, rate: figure.Draw(t, "rate"),
				capacity: figure.Draw(t, "capacity"), wants: int(figure.Draw(t, "wants")), ask: int(figure.Draw(t, "ask")),
				allowed: uint64(figure.Draw(t, "allowed")), denied: uint64(figure.Draw(t, "denied")), back: figure.Draw(t, "back"),
			}
			over = over || max(forged.rate, forged.capacity, float64(forged.wants)) > rate || float64(forged.allowed) > 3*rate
			s.share(mallory, &forged, now)
			for i, st := range honest {
				if a := st.waiting["fleet"]; a != nil {
					shares[i] = a.share
					delete(st.waiting, "fleet")
				}
				s.share(st, &usage{topic: "fleet", report: uint64(k), share: shares[i], elapsed: 100 * time.Millisecond, left: -1,
					denied: uint64(rate), wants: 1}, now)
			}
			s.rounds(now)
		}
		for _, st := range honest {
			if got := s.topics["fleet"].members[st.id()].current().rate; got < 0.9*rate/float64(len(honest)+1) {
				t.Errorf("%s has %v of %v among %d", st.node, got, rate, len(honest)+1)
			}
		}
		if named := strings.Contains(log.String(), "node=mallory"); named != over || over != (s.Impossible() > 0) {
			t.Errorf("named %t, over the policy %t, %d reports; the log says:\n%s", named, over, s.Impossible(), &log)
		}
	})
}

// What a sidecar says that it let through counts as far as it was granted, or as the share of one, in the time since its last
// report, whatever it says of that time.
func TestAllowedIsWhatWasGranted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var now time.Time
		const rate, burst = 1000, 500
		s := newServer(rate, burst, &now)
		others := make([]*stream, rapid.IntRange(1, 6).Draw(t, "others"))
		for i := range others {
			others[i] = newMember(fmt.Sprint(i))
		}
		mallory, share := newMember("mallory"), ""
		one := 1 / float64(len(others)+1)
		type grant struct {
			rate, burst float64
			at          time.Time
		}
		var grants []grant
		for k := range 60 {
			now = now.Add(100 * time.Millisecond)
			for _, st := range others {
				s.share(st, &usage{topic: "fleet", report: uint64(k), elapsed: 100 * time.Millisecond, left: -1,
					denied: rapid.SampledFrom([]uint64{0, 10, 1000}).Draw(t, "denied"), wants: 1}, now)
			}
			if a := mallory.waiting["fleet"]; a != nil {
				share = a.share
				grants = append(grants, grant{a.rate, float64(a.burst), now})
				delete(mallory.waiting, "fleet")
			}
			elapsed := rapid.SampledFrom([]time.Duration{0, 100 * time.Millisecond, time.Second, 24 * time.Hour}).Draw(t, "elapsed")
			forged := usage{topic: "fleet", report: uint64(k), share: share, elapsed: elapsed, left: -1, wants: 1,
				allowed: rapid.SampledFrom([]uint64{0, 100, 10_000, math.MaxUint32}).Draw(t, "allowed")}
			s.share(mallory, &forged, now)
			s.rounds(now)
			most := grant{rate * one, burst * one, now}
			for _, g := range grants {
				if now.Sub(g.at) <= 2*lapse {
					most = grant{max(most.rate, g.rate), max(most.burst, g.burst), now}
				}
			}
			if got := float64(forged.allowed); k > 20 && got > 2*(most.burst+most.rate/4)+1.01*most.rate*2 {
				t.Fatalf("%v count as let through, where %+v was granted", got, most)
			}
		}
	})
}

// counts is a sink that adds up what a sidecar let through and refused.
type counts struct{ allowed, denied uint64 }

func (*counts) Tenant(string, string, uint64, uint64, time.Time) {}

func (c *counts) Usage(_, _ string, allowed, denied uint64, _ time.Time) {
	c.allowed, c.denied = c.allowed+allowed, c.denied+denied
}
func (c *counts) Share(string, string, float64) {}

// TestForgedCountsAreBounded: what is shown of a sidecar's usage is no more than the policy allows of a fleet-wide topic, and
// no more than any sidecar can do of others. Who says more is named; what is true is not changed.
func TestForgedCountsAreBounded(t *testing.T) {
	for _, c := range []struct {
		topic                   string
		allowed, denied         uint64
		mostAllowed, mostDenied uint64
		named                   bool
	}{
		{"fleet", 110, 5000, 110, 5000, false},
		{"fleet", 4_000_000_000, 0, 351, 0, true},
		{"fleet", 0, math.MaxInt64, 0, 1e9, true},
		{"other", 4_000_000, 7, 4_000_000, 7, false},
		{"other", math.MaxInt64, math.MaxInt64, 1e9, 1e9, true},
	} {
		var now time.Time
		s := newServer(100, 100, &now)
		var got counts
		s.cfg.Usage = &got
		require.NoError(t, s.report(newMember("mallory"), &rlqs.RateLimitQuotaUsageReports{
			BucketQuotaUsages: []*rlqs.RateLimitQuotaUsageReports_BucketQuotaUsage{{
				BucketId:    &rlqs.BucketId{Bucket: map[string]string{policypb.QuotaTopic: c.topic}},
				TimeElapsed: durationpb.New(time.Second), NumRequestsAllowed: c.allowed, NumRequestsDenied: c.denied,
			}},
		}))
		if got != (counts{c.mostAllowed, c.mostDenied}) || (s.Impossible() > 0) != c.named {
			t.Errorf("%+v: counted %+v, named %t", c, got, s.Impossible() > 0)
		}
	}
}

// The shares follow demand: max-min fair, and never more than there is.
func TestDivide(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &topic{rate: 100}
		wants := rapid.SliceOfN(rapid.Float64Range(0, 300), 1, 20).Draw(t, "wants")
		sum := 0.0
		for i, w := range wants {
			p.active = append(p.active, &member{want: w, instance: fmt.Sprint(i)})
			sum += w
		}
		p.divideRate()
		given, least, most := 0.0, math.Inf(1), 0.0
		for _, m := range p.active {
			given += m.fair
			most = max(most, m.fair)
			if m.fair < m.want-1e-9 {
				least = min(least, m.fair)
			}
		}
		if given > 100+1e-6 || sum >= 100 && given < 100-1e-6 {
			t.Fatalf("%v of 100 is given for %v", given, wants)
		}
		if least < most-1e-6 {
			t.Fatalf("one wants more than its %v, another has %v", least, most)
		}
	})
}

// The parts of the control planes add up to at most 1, even if documents are delayed and lost.
func TestPartsAddUpToOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := epoch
		servers := make([]*Server, rapid.IntRange(2, 4).Draw(t, "control planes"))
		docs, names := map[string][]byte{}, make([]string, len(servers))
		for i := range servers {
			names[i] = fmt.Sprint("cp-", i)
			servers[i] = New(Config{Shared: true, Now: func() time.Time { return now }})
			docs[names[i]] = servers[i].Export()
		}
		parts := make([]float64, len(servers))
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 300).Draw(t, "pause")) * time.Millisecond)
			i := rapid.IntRange(0, len(servers)-1).Draw(t, "control plane")
			s := servers[i]
			if rapid.Bool().Draw(t, "exchange") {
				docs[names[i]] = s.Export()
				require.NoError(t, s.Merge(names[i], docs))
			}
			demand := rapid.SampledFrom([]float64{0, 0.1, 0.5, 2}).Draw(t, "demand")
			parts[i], _ = s.peers.part("fleet", demand, parts[i], now)
			sum := 0.0
			for _, p := range parts {
				sum += p
			}
			if sum > 1+1e-9 {
				t.Fatalf("the parts are %v", parts)
			}
		}
	})
}

func TestMergeKeepsWhatItCannotRead(t *testing.T) {
	now := epoch
	s := New(Config{Shared: true, Now: func() time.Time { return now }})
	other, err := json.Marshal(document{Number: 7, Topics: map[string]portion{"fleet": {Demand: 1, Taken: 0.75}}})
	require.NoError(t, err)
	s.Export()
	require.NoError(t, s.Merge("a", map[string][]byte{"b": other}))
	if err := s.Merge("a", map[string][]byte{"b": []byte("{")}); err == nil || !strings.Contains(err.Error(), `"b"`) {
		t.Errorf("a broken document: %v", err)
	}
	if got := s.peers.others["b"].Topics["fleet"].Taken; got != 0.75 {
		t.Errorf("the other is taken to have %v, want 0.75", got)
	}
}

func report(id map[string]string, change func(*rlqs.RateLimitQuotaUsageReports_BucketQuotaUsage)) *rlqs.RateLimitQuotaUsageReports {
	u := &rlqs.RateLimitQuotaUsageReports_BucketQuotaUsage{
		BucketId: &rlqs.BucketId{Bucket: id}, TimeElapsed: durationpb.New(time.Second), NumRequestsAllowed: 3,
	}
	if change != nil {
		change(u)
	}
	return &rlqs.RateLimitQuotaUsageReports{Domain: policypb.QuotaDomain,
		BucketQuotaUsages: []*rlqs.RateLimitQuotaUsageReports_BucketQuotaUsage{u}}
}

func TestReadReport(t *testing.T) {
	good := map[string]string{policypb.QuotaTopic: "orders", policypb.QuotaShare: "x-1", policypb.QuotaReport: "7",
		policypb.QuotaWants: "2", policypb.QuotaAsk: "3", policypb.QuotaBack: "1.5", "later": "x"}
	usages, err := readReport(report(good, nil))
	want := usage{topic: "orders", share: "x-1", report: 7, wants: 2, ask: 3, back: 1.5, left: -1, allowed: 3, elapsed: time.Second}
	if err != nil || len(usages) != 1 || usages[0] != want {
		t.Errorf("read %+v, %v", usages, err)
	}
	for want, bad := range map[string]*rlqs.RateLimitQuotaUsageReports{
		"domain":       {Domain: "another"},
		"topic is":     report(map[string]string{}, nil),
		"reserved":     report(map[string]string{policypb.QuotaTopic: "_x"}, nil),
		"wants":        report(map[string]string{policypb.QuotaTopic: "x", policypb.QuotaWants: "-1"}, nil),
		"back":         report(map[string]string{policypb.QuotaTopic: "x", policypb.QuotaBack: "NaN"}, nil),
		"report":       report(map[string]string{policypb.QuotaTopic: "x", policypb.QuotaReport: "first"}, nil),
		"share":        report(map[string]string{policypb.QuotaTopic: "x", policypb.QuotaShare: strings.Repeat("x", 300)}, nil),
		"out of range": report(good, func(u *rlqs.RateLimitQuotaUsageReports_BucketQuotaUsage) { u.NumRequestsDenied = math.MaxUint64 }),
		"time_elapsed": report(good, func(u *rlqs.RateLimitQuotaUsageReports_BucketQuotaUsage) { u.TimeElapsed = durationpb.New(-1) }),
	} {
		if _, err := readReport(bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error that says %q, got %v", want, err)
		}
	}
}

func FuzzReport(f *testing.F) {
	seed, err := proto.Marshal(report(map[string]string{policypb.QuotaTopic: "fleet", policypb.QuotaReport: "7",
		policypb.QuotaAsk: "3", policypb.QuotaRate: "1e3", policypb.QuotaCapacity: "2"}, nil))
	require.NoError(f, err)
	f.Add(seed)
	f.Fuzz(func(t *testing.T, data []byte) {
		m := &rlqs.RateLimitQuotaUsageReports{}
		if proto.Unmarshal(data, m) != nil {
			return
		}
		var now time.Time
		s, st := newServer(10, 10, &now), newMember("a")
		if s.report(st, m) == nil {
			s.rounds(now)
		}
		if p := s.topics["fleet"]; p != nil && (math.IsNaN(p.rates+p.bursts+p.reservoir) || math.IsInf(p.rates+p.bursts+p.reservoir, 0)) {
			t.Fatalf("%+v", p)
		}
	})
}

// A rate goes over the wire as tokens per interval, and never grows.
func TestRatesAsBuckets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := math.Exp(rapid.Float64Range(math.Log(1e-3), math.Log(1e8)).Draw(t, "log"))
		b := (&answer{rate: rate, burst: 5}).bucket()
		got := float64(b.GetTokensPerFill().GetValue()) / b.GetFillInterval().AsDuration().Seconds()
		if got > rate*(1+1e-12) || got < rate*(1-1e-6) {
			t.Fatalf("%v became %v", rate, got)
		}
		still := (&answer{pace: rate}).bucket()
		if still.GetTokensPerFill().GetValue() != 0 || still.GetFillInterval().AsDuration() <= 0 {
			t.Fatalf("a bucket that does not fill: %v", still)
		}
	})
}

// The graceful leave frees at once, a broken stream after its lifetime.
func TestLeaving(t *testing.T) {
	var now time.Time
	s := newServer(100, 10, &now)
	for _, c := range []struct {
		left bool
		want float64
	}{{true, 0}, {false, 100}} {
		st := newMember("a")
		now = now.Add(time.Second)
		s.share(st, &usage{topic: "fleet", report: 1, ask: 1, wants: 1, left: -1}, now)
		s.rounds(now)
		if got := s.topics["fleet"].rates; got != 100 {
			t.Fatalf("alone it has %v of 100", got)
		}
		s.detach(st, c.left)
		if got := s.topics["fleet"].rates; got != c.want {
			t.Errorf("left in order %v: %v may act, want %v", c.left, got, c.want)
		}
		now = now.Add(lapse)
		s.rounds(now)
		if got := s.topics["fleet"].rates; got != 0 {
			t.Errorf("left in order %v: %v may act after its lifetime", c.left, got)
		}
	}
}

// A sidecar that leaves its fallback gets a share of what the others leave, also while another one
// that is cut off may still be using its own.
func TestBackFromTheFallback(t *testing.T) {
	var now time.Time
	s := newServer(100, 10, &now)
	a, b := newMember("a"), newMember("b")
	s.share(a, &usage{topic: "fleet", report: 1, ask: 1, wants: 1, left: -1}, now)
	s.rounds(now)
	s.detach(a, false)
	fallen := usage{topic: "fleet", report: 1, rate: 50, capacity: 5, allowed: 10, elapsed: 200 * time.Millisecond, left: -1}
	now = now.Add(200 * time.Millisecond)
	s.share(b, &fallen, now)
	s.rounds(now)
	if got := b.waiting["fleet"]; got == nil || got.rate != 0 {
		t.Fatalf("it is given %+v while all of the rate may be in use", got)
	}
	share := b.waiting["fleet"].share
	for range 10 {
		now = now.Add(200 * time.Millisecond)
		s.share(b, &usage{topic: "fleet", report: 2, share: share, denied: 10, elapsed: 200 * time.Millisecond, left: -1}, now)
		s.rounds(now)
	}
	if got := b.waiting["fleet"]; got.rate != 100 {
		t.Errorf("it is given %+v once it is alone, want all", got)
	}
}

func BenchmarkUsageReport(b *testing.B) {
	var now time.Time
	s, st := newServer(100, 10, &now), newMember("a")
	m := &rlqs.RateLimitQuotaUsageReports{}
	for i := range 20 {
		m.BucketQuotaUsages = append(m.BucketQuotaUsages,
			report(map[string]string{policypb.QuotaTopic: fmt.Sprint("orders-", i)}, nil).BucketQuotaUsages...)
	}
	b.ReportAllocs()
	for b.Loop() {
		require.NoError(b, s.report(st, m))
	}
}

func BenchmarkRound(b *testing.B) {
	for _, members := range []int{10, 1000} {
		b.Run(fmt.Sprint(members), func(b *testing.B) {
			var now time.Time
			s := newServer(1e5, 1e5, &now)
			streams := make([]*stream, members)
			for i := range streams {
				streams[i] = newMember(fmt.Sprint(i))
			}
			shares := make([]string, members)
			b.ReportAllocs()
			for k := uint64(1); b.Loop(); k++ {
				b.StopTimer()
				now = now.Add(100 * time.Millisecond)
				for i, st := range streams {
					if a := st.waiting["fleet"]; a != nil {
						shares[i] = a.share
						delete(st.waiting, "fleet")
					}
					if k%2 == 0 {
						s.share(st, &usage{topic: "fleet", share: shares[i], report: k, allowed: 20 +
							k*uint64(i)%30, denied: 20, wants: 1, left: -1, elapsed: 200 * time.Millisecond}, now)
					}
				}
				b.StartTimer()
				s.rounds(now)
			}
		})
	}
}
