package quota

import (
	"fmt"
	"strconv"
	"time"

	rlqs "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sluice-bus/sluice/internal/policypb"
)

type usage = rlqs.RateLimitQuotaUsageReports_BucketQuotaUsage

func newUsage(topic, tenant string, allowed, denied uint64, elapsed time.Duration) *usage {
	id := map[string]string{policypb.QuotaTopic: topic}
	if tenant != "" {
		id[policypb.QuotaTenant] = tenant
	}
	return &usage{
		BucketId:    &rlqs.BucketId{Bucket: id},
		TimeElapsed: durationpb.New(max(elapsed, 0)), NumRequestsAllowed: allowed, NumRequestsDenied: denied,
	}
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// assignment is the control plane's answer for one topic or tenant.
type assignment struct {
	topic, share string // topic as in policypb.QuotaName
	report       uint64 // the report that it answers
	abandon      bool
	lifetime     time.Duration // from that report on
	rate         float64       // 0: tokens come only by grants
	pace         float64       // the rate at which grants are expected then
	burst, grant int
}

func readAction(m *rlqs.RateLimitQuotaResponse_BucketAction) (assignment, error) {
	id := m.GetBucketId().GetBucket()
	a := assignment{topic: policypb.QuotaName(id[policypb.QuotaTopic], id[policypb.QuotaTenant]), share: id[policypb.QuotaShare]}
	var err error
	if a.report, err = strconv.ParseUint(id[policypb.QuotaReport], 10, 64); err != nil {
		return a, fmt.Errorf("bucket_id %s is %q, not a number", policypb.QuotaReport, id[policypb.QuotaReport])
	}
	if m.GetAbandonAction() != nil {
		a.abandon = true
		return a, nil
	}
	if text, ok := id[policypb.QuotaGrant]; ok {
		if a.grant, err = strconv.Atoi(text); err != nil || a.grant < 0 {
			return a, fmt.Errorf("bucket_id %s is %q, not a number of tokens", policypb.QuotaGrant, text)
		}
	}
	action := m.GetQuotaAssignmentAction()
	bucket := action.GetRateLimitStrategy().GetTokenBucket()
	interval := bucket.GetFillInterval().AsDuration()
	if bucket == nil || interval <= 0 || a.topic == "" || a.share == "" {
		return a, fmt.Errorf("an assignment of topic %q without a token bucket, a fill interval or a share", a.topic)
	}
	a.lifetime = action.GetAssignmentTimeToLive().AsDuration()
	a.burst = int(bucket.GetMaxTokens())
	if tokens := bucket.GetTokensPerFill().GetValue(); tokens > 0 {
		a.rate = float64(tokens) / interval.Seconds()
	} else {
		a.pace = 1 / interval.Seconds()
	}
	return a, nil
}
