package quota

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	rlqs "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/internal/policypb"
)

const (
	leastBackoff = 100 * time.Millisecond
	mostBackoff  = 2 * time.Second
	// leaveWithin is how long the control plane may take to end the stream of a sidecar that
	// leaves.
	leaveWithin = 500 * time.Millisecond
	// maxSent is the number of remembered reports: a share's lifetime begins with its report.
	maxSent = 1024
	// maxReported is the number of topics and tenants in one message; the rest goes into further
	// messages.
	maxReported = 5000
)

type link = grpc.BidiStreamingClient[rlqs.RateLimitQuotaUsageReports, rlqs.RateLimitQuotaResponse]

// Run reports until ctx ends, over any number of connections; then it tells the control plane that
// the sidecar leaves. Call it once.
func (c *Client) Run(ctx context.Context) error {
	backoff := pause.Backoff{First: leastBackoff, Most: mostBackoff}
	for ctx.Err() == nil {
		began := time.Now()
		err := c.serve(ctx)
		c.connected.Store(false)
		c.fallBack()
		if ctx.Err() != nil {
			break
		}
		if time.Since(began) > mostBackoff {
			backoff.Reset()
		}
		wait := backoff.Step()
		level := slog.LevelDebug // package control logs that the connection is lost
		if status.Code(err) != codes.Unavailable {
			level = slog.LevelWarn
		}
		c.cfg.Logger.Log(ctx, level, "the control plane accepts no usage reports; fleet-wide rates use their fallback",
			"error", err, "again_in", wait)
		pause.For(ctx, wait)
	}
	return nil
}

// fallBack switches the topics that wait for an answer to their fallback: it cannot come.
func (c *Client) fallBack() {
	now := time.Now()
	for _, v := range c.shares.Range {
		v.(*share).unanswered(nil, now)
	}
}

// serve keeps one stream.
func (c *Client) serve(ctx context.Context) error {
	// The stream outlives ctx by the time that leaving takes.
	streaming, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	streaming = metadata.AppendToOutgoingContext(streaming,
		policypb.StreamNodeID, c.cfg.NodeID, policypb.StreamInstanceSecret, c.cfg.InstanceSecret)
	abandon := context.AfterFunc(ctx, func() { // while it is being opened
		if !c.connected.Load() {
			stop()
		}
	})
	defer abandon()
	stream, err := rlqs.NewRateLimitQuotaServiceClient(c.cfg.Conn).StreamRateLimitQuotas(streaming)
	if err != nil {
		return err
	}
	answers := make(chan *rlqs.RateLimitQuotaResponse)
	ended := make(chan error, 1)
	var receiver sync.WaitGroup
	receiver.Go(func() { ended <- receive(streaming, stream, answers) })
	defer receiver.Wait()
	defer stop()
	c.connected.Store(true)
	ticks := time.NewTicker(askEvery)
	defer ticks.Stop()
	for tick := 1; ; {
		select {
		case <-ctx.Done():
			return c.leave(stream, answers, ended)
		case err := <-ended:
			return err
		case m := <-answers:
			if c.apply(m, time.Now()) {
				err = c.report(stream, false)
			}
		case <-c.kick:
			err = c.report(stream, false)
		case <-ticks.C:
			regular := tick%int(reportEvery/askEvery) == 0
			if tick++; regular || c.hurried.Swap(false) {
				err = c.report(stream, regular)
			}
		}
		if err != nil {
			return errors.Join(err, <-ended)
		}
	}
}

func receive(ctx context.Context, stream link, to chan<- *rlqs.RateLimitQuotaResponse) error {
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		select {
		case to <- m:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// leave ends the use of the shares, and then tells the control plane.
func (c *Client) leave(stream link, answers <-chan *rlqs.RateLimitQuotaResponse, ended <-chan error) error {
	c.connected.Store(false)
	now := time.Now()
	for _, v := range c.shares.Range {
		s := v.(*share)
		s.mu.Lock()
		s.release()
		if s.state != none {
			s.fallBack(now)
		}
		s.mu.Unlock()
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	timer := time.NewTimer(leaveWithin)
	defer timer.Stop()
	for {
		select {
		case <-answers:
		case err := <-ended:
			return err
		case <-timer.C:
			return context.DeadlineExceeded
		}
	}
}

// apply applies an answer, and reports whether it has to be acknowledged at once.
func (c *Client) apply(m *rlqs.RateLimitQuotaResponse, now time.Time) (acknowledge bool) {
	for _, action := range m.GetBucketAction() {
		a, err := readAction(action)
		if err != nil {
			c.cfg.Logger.Warn("an assignment of the control plane cannot be read", "error", err)
			continue
		}
		v, ok := c.shares.Load(a.topic)
		at := slices.IndexFunc(c.sent, func(s sending) bool { return s.number == a.report })
		if ok && at >= 0 && v.(*share).apply(&a, c.sent[at].at, now) {
			acknowledge = true
		}
	}
	return acknowledge
}

// report sends the usage of all topics if it is regular, else of the topics with urgent reports.
func (c *Client) report(stream link, regular bool) error {
	now := time.Now()
	c.reports++
	message := &rlqs.RateLimitQuotaUsageReports{Domain: policypb.QuotaDomain}
	add := func(u *usage) error {
		message.BucketQuotaUsages = append(message.BucketQuotaUsages, u)
		if len(message.BucketQuotaUsages) < maxReported {
			return nil
		}
		full := message
		message = &rlqs.RateLimitQuotaUsageReports{Domain: policypb.QuotaDomain}
		defer func() { c.reports++ }()
		return c.send(stream, full, now)
	}
	for _, v := range c.shares.Range {
		s := v.(*share)
		u, keep := s.report(c.reports, regular, now)
		if u != nil {
			if err := add(u); err != nil {
				return err
			}
		}
		if !keep {
			c.forget(s)
		}
	}
	if regular && now.Sub(c.counters.since) >= countEvery {
		shared := func(topic string) bool { _, ok := c.shares.Load(topic); return ok }
		if err := c.counters.collect(now, shared, add); err != nil {
			return err
		}
		// A tenant that has got a share counts there: what was counted before is reported here, too.
		if err := c.tenants.collect(now, func(string) bool { return false }, add); err != nil {
			return err
		}
	}
	return c.send(stream, message, now)
}

// send sends the latest report, unless it is empty.
func (c *Client) send(stream link, message *rlqs.RateLimitQuotaUsageReports, now time.Time) error {
	if len(message.BucketQuotaUsages) == 0 {
		return nil
	}
	if len(c.sent) >= maxSent {
		c.sent = append(c.sent[:0], c.sent[maxSent/2:]...)
	}
	c.sent = append(c.sent, sending{c.reports, now})
	return stream.Send(message)
}
