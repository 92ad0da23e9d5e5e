package quota

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	rlqs "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	envoytype "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/internal/policypb"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
)

const (
	maxIdentity = 256    // bytes of a node id or an instance
	maxUsages   = 20_000 // in one report
)

// usage is one topic's part of a report.
type usage struct {
	topic           string
	tenant          string // "": the topic itself
	allowed, denied uint64
	elapsed         time.Duration

	share    string  // of the share that acts; "": none
	report   uint64  // the report's number
	wants    int     // the largest publish that lacked tokens; 0: none did
	ask      int     // tokens that waiting publishes want; 0: none waits
	back     float64 // tokens that the change to share took away
	left     float64 // tokens at the sidecar; -1: not reported
	rate     float64 // of the fallback, where that acts
	capacity float64
}

// readReport checks a whole message and reads it.
func readReport(m *rlqs.RateLimitQuotaUsageReports) ([]usage, error) {
	if d := m.GetDomain(); d != "" && d != policypb.QuotaDomain {
		return nil, fmt.Errorf("domain is %q, not %q", d, policypb.QuotaDomain)
	}
	if n := len(m.GetBucketQuotaUsages()); n > maxUsages {
		return nil, fmt.Errorf("%d usages in one report, at most %d are allowed", n, maxUsages)
	}
	out := make([]usage, len(m.GetBucketQuotaUsages()))
	for i, u := range m.GetBucketQuotaUsages() {
		if err := out[i].read(u); err != nil {
			return nil, fmt.Errorf("bucket_quota_usages[%d]: %w", i, err)
		}
	}
	return out, nil
}

func (u *usage) read(m *rlqs.RateLimitQuotaUsageReports_BucketQuotaUsage) error {
	id := m.GetBucketId().GetBucket()
	u.topic, u.share = id[policypb.QuotaTopic], id[policypb.QuotaShare]
	if err := codec.CheckTopic(u.topic); err != nil {
		return errors.New(err.Msg)
	}
	if len(u.share) > maxIdentity {
		return fmt.Errorf("bucket_id %s is too long", policypb.QuotaShare)
	}
	if u.tenant = id[policypb.QuotaTenant]; len(u.tenant) > maxIdentity {
		return fmt.Errorf("bucket_id %s is too long", policypb.QuotaTenant)
	}
	if d := m.GetTimeElapsed(); d != nil {
		if err := d.CheckValid(); err != nil {
			return fmt.Errorf("time_elapsed: %w", err)
		}
		u.elapsed = d.AsDuration()
	}
	u.allowed, u.denied = m.GetNumRequestsAllowed(), m.GetNumRequestsDenied()
	if u.elapsed < 0 || u.elapsed > 24*time.Hour || max(u.allowed, u.denied) > math.MaxInt64 {
		return errors.New("time_elapsed or a count is out of range")
	}
	wants, ask, left := 0.0, 0.0, -1.0
	if len(id) > 1 { // of a topic that is not fleet-wide the id has the topic alone
		for _, n := range [...]struct {
			key string
			to  *float64
		}{
			{policypb.QuotaWants, &wants}, {policypb.QuotaAsk, &ask}, {policypb.QuotaBack, &u.back},
			{policypb.QuotaLeft, &left}, {policypb.QuotaRate, &u.rate}, {policypb.QuotaCapacity, &u.capacity},
		} {
			if err := readNumber(id, n.key, n.to); err != nil {
				return err
			}
		}
	}
	u.wants, u.ask, u.left = int(wants), int(ask), left
	if text, ok := id[policypb.QuotaReport]; ok {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return fmt.Errorf("bucket_id %s is %q, not a number", policypb.QuotaReport, text)
		}
		u.report = n
	}
	return nil
}

// maxPerSecond is how many events a second a sidecar may report as let through, and as refused: the highest rate of a
// policy.
const maxPerSecond = 1e9

// limit bounds what a sidecar says by what any can do in that time, and reports whether it said more.
func (u *usage) limit() (impossible bool) {
	most := uint64(maxPerSecond * max(u.elapsed, time.Second).Seconds())
	impossible = u.allowed > most || u.denied > most
	u.allowed, u.denied = min(u.allowed, most), min(u.denied, most)
	return impossible
}

// readNumber reads one part of a bucket id, if it is there.
func readNumber(id map[string]string, key string, to *float64) error {
	text, ok := id[key]
	if !ok {
		return nil
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || !(v >= 0 && v <= math.MaxUint32) {
		return fmt.Errorf("bucket_id %s is %q, not a number from 0 to 2^32", key, text)
	}
	*to = v
	return nil
}

// number parses the name of a share that this server handed out; 0: it did not.
func (s *Server) number(share string) uint64 {
	text, own := strings.CutPrefix(share, s.epoch)
	if !own {
		return 0
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n > s.last.Load() {
		return 0
	}
	return n
}

// answer is the assignment of one topic that is sent to a sidecar.
type answer struct {
	report  uint64 // the number of the report that it answers
	abandon bool   // there is no share: the fallback acts
	share   string
	rate    float64 // tokens per second; 0: it gets tokens only by grants
	pace    float64 // where rate is 0: the rate at which grants can be expected
	burst   int
	grant   int
}

func (a *answer) action(name string) *rlqs.RateLimitQuotaResponse_BucketAction {
	topic, tenant := policypb.QuotaParts(name)
	id := map[string]string{policypb.QuotaTopic: topic, policypb.QuotaShare: a.share, policypb.QuotaReport: strconv.FormatUint(a.report, 10)}
	if tenant != "" {
		id[policypb.QuotaTenant] = tenant
	}
	if a.grant > 0 {
		id[policypb.QuotaGrant] = strconv.Itoa(a.grant)
	}
	out := &rlqs.RateLimitQuotaResponse_BucketAction{BucketId: &rlqs.BucketId{Bucket: id}}
	if a.abandon {
		out.BucketAction = &rlqs.RateLimitQuotaResponse_BucketAction_AbandonAction_{
			AbandonAction: &rlqs.RateLimitQuotaResponse_BucketAction_AbandonAction{},
		}
		return out
	}
	out.BucketAction = &rlqs.RateLimitQuotaResponse_BucketAction_QuotaAssignmentAction_{
		QuotaAssignmentAction: &rlqs.RateLimitQuotaResponse_BucketAction_QuotaAssignmentAction{
			AssignmentTimeToLive: durationpb.New(lifetime),
			RateLimitStrategy: &envoytype.RateLimitStrategy{
				Strategy: &envoytype.RateLimitStrategy_TokenBucket{TokenBucket: a.bucket()},
			},
		},
	}
	return out
}

// bucket writes a rate as tokens per interval, never a higher one. A bucket that does not fill has
// 0 tokens in the interval in which one is expected.
func (a *answer) bucket() *envoytype.TokenBucket {
	perSecond := a.rate
	if a.rate <= 0 {
		perSecond = max(a.pace, 1e-6)
	}
	tokens := min(max(math.Ceil(perSecond), 1), math.MaxUint32)
	interval := time.Duration(math.Ceil(tokens / perSecond * float64(time.Second)))
	if a.rate <= 0 {
		interval, tokens = time.Duration(float64(interval)/tokens), 0
	}
	return &envoytype.TokenBucket{
		MaxTokens:     uint32(min(a.burst, math.MaxUint32)),
		TokensPerFill: wrapperspb.UInt32(uint32(tokens)),
		FillInterval:  durationpb.New(interval),
	}
}

// stream sends answers to one sidecar. Only the newest answer of each topic waits to be sent, so
// the number of topics bounds what waits.
type stream struct {
	node, instance string
	topics         map[string]bool // fleet-wide topics that it reported; of the goroutine that receives

	ready   pause.Wake
	mu      sync.Mutex
	waiting map[string]*answer
}

func (st *stream) id() memberID { return memberID{st.node, st.instance} }

// tell queues an answer. It replaces an answer that still waits, and takes over its grant.
func (st *stream) tell(topic string, a *answer) {
	st.mu.Lock()
	if old := st.waiting[topic]; old != nil && !a.abandon {
		a.grant += old.grant
	}
	st.waiting[topic] = a
	st.mu.Unlock()
	st.ready.Set()
}

// send sends the waiting answers until ctx ends or sending fails. Receiving fails then, too.
func (st *stream) send(ctx context.Context, send func(*rlqs.RateLimitQuotaResponse) error) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-st.ready:
		}
		st.mu.Lock()
		waiting := st.waiting
		st.waiting = make(map[string]*answer, len(waiting))
		st.mu.Unlock()
		message := &rlqs.RateLimitQuotaResponse{}
		for topic, a := range waiting {
			message.BucketAction = append(message.BucketAction, a.action(topic))
		}
		if len(message.BucketAction) > 0 && send(message) != nil {
			return
		}
	}
}
