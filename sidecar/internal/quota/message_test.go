package quota

import (
	"fmt"
	"testing"
	"time"

	rlqs "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	envoytype "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/internal/policypb"
	"github.com/sluice-bus/sluice/test/require"
)

func action(id map[string]string, tokens uint32, interval time.Duration) *rlqs.RateLimitQuotaResponse_BucketAction {
	return &rlqs.RateLimitQuotaResponse_BucketAction{
		BucketId: &rlqs.BucketId{Bucket: id},
		BucketAction: &rlqs.RateLimitQuotaResponse_BucketAction_QuotaAssignmentAction_{
			QuotaAssignmentAction: &rlqs.RateLimitQuotaResponse_BucketAction_QuotaAssignmentAction{
				AssignmentTimeToLive: durationpb.New(time.Second),
				RateLimitStrategy: &envoytype.RateLimitStrategy{Strategy: &envoytype.RateLimitStrategy_TokenBucket{
					TokenBucket: &envoytype.TokenBucket{
						MaxTokens: 9, TokensPerFill: wrapperspb.UInt32(tokens), FillInterval: durationpb.New(interval),
					},
				}},
			},
		},
	}
}

func TestReadAction(t *testing.T) {
	id := map[string]string{policypb.QuotaTopic: "orders", policypb.QuotaShare: "x-1", policypb.QuotaReport: "7", policypb.QuotaGrant: "3"}
	got, err := readAction(action(id, 5, 2*time.Second))
	want := assignment{topic: "orders", share: "x-1", report: 7, grant: 3, burst: 9, rate: 2.5, lifetime: time.Second}
	if err != nil || got != want {
		t.Errorf("read %+v, %v", got, err)
	}
	if got, err = readAction(action(id, 0, 2*time.Second)); err != nil || got.rate != 0 || got.pace != 0.5 {
		t.Errorf("read %+v, %v, want a bucket that does not fill", got, err)
	}
	for _, bad := range []*rlqs.RateLimitQuotaResponse_BucketAction{
		{},
		{BucketId: &rlqs.BucketId{Bucket: id}},
		action(id, 5, 0),
		action(map[string]string{policypb.QuotaReport: "7"}, 5, time.Second),
		action(map[string]string{policypb.QuotaTopic: "x", policypb.QuotaShare: "y", policypb.QuotaReport: "7",
			policypb.QuotaGrant: "-1"}, 5, time.Second),
	} {
		if got, err := readAction(bad); err == nil {
			t.Errorf("%v was read as %+v", bad, got)
		}
	}
}

func FuzzAnswer(f *testing.F) {
	seed, err := proto.Marshal(&rlqs.RateLimitQuotaResponse{BucketAction: []*rlqs.RateLimitQuotaResponse_BucketAction{
		action(map[string]string{policypb.QuotaTopic: "orders", policypb.QuotaShare: "x-1", policypb.QuotaReport: "1",
			policypb.QuotaGrant: "3"}, 5, time.Second),
	}})
	require.NoError(f, err)
	f.Add(seed)
	f.Fuzz(func(t *testing.T, data []byte) {
		m := &rlqs.RateLimitQuotaResponse{}
		if proto.Unmarshal(data, m) != nil {
			return
		}
		now := time.Now()
		c := New(Config{})
		p := policy.Publish{Rate: 10, Burst: 5}
		b := c.Bucket(t.Context(), "orders", 0, p, now)
		c.sent = []sending{{1, now}}
		c.apply(m, now)
		if got := b.Tokens(now); !(got >= 0 && got <= 1<<32) {
			t.Fatalf("%v tokens", got)
		}
	})
}

// Topics are counted up to a bound, and forgotten when nobody publishes.
func TestCountersAreBounded(t *testing.T) {
	c := New(Config{})
	for i := range maxTopics + 5 {
		c.Count(fmt.Sprint("topic-", i), 1, 0)
	}
	if got := c.counters.n.Load(); got != maxTopics {
		t.Errorf("%d topics are counted, at most %d should be", got, maxTopics)
	}
	for i := range maxTenants + 5 { // which are counted in their topic, then
		c.CountTenant("topic-1", fmt.Sprint("tenant-", i), 1, 2)
	}
	reported, ofTopic := map[string]int{}, uint64(0)
	for range forgetCounter + 2 {
		for _, of := range []*counters{&c.counters, &c.tenants} {
			err := of.collect(time.Now(), func(string) bool { return false }, func(u *usage) error {
				id := u.GetBucketId().GetBucket()
				reported[id[policypb.QuotaTenant]]++
				if id[policypb.QuotaTopic] == "topic-1" {
					ofTopic += u.GetNumRequestsAllowed() + u.GetNumRequestsDenied()
				}
				return nil
			})
			require.NoError(t, err)
		}
	}
	if left := c.counters.n.Load() + c.tenants.n.Load(); reported[""] != maxTopics || len(reported) != 1+maxTenants || left != 0 {
		t.Errorf("%d topics and %d tenants were reported, and %d are left", reported[""], len(reported)-1, left)
	}
	if want := uint64(1 + 3*(maxTenants+5)); ofTopic != want {
		t.Errorf("%d events of a topic and its tenants were reported, want %d", ofTopic, want)
	}
}

// A fleet-wide topic above the bound is refused, not let through.
func TestSharesAreBounded(t *testing.T) {
	c := New(Config{})
	p, now := policy.Publish{Rate: 10, Burst: 5}, time.Now()
	for i := range maxFleetTopics {
		c.Bucket(t.Context(), fmt.Sprint("topic-", i), 0, p, now)
	}
	if v := c.Bucket(t.Context(), "one more", 0, p, now).Take(1, now); v.OK || v.OverBurst || v.Wait != 100*time.Millisecond {
		t.Errorf("one topic too many: %+v", v)
	}
}
