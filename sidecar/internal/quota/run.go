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

	"github.com/sluice-bus/sluice/controlplane/policypb"
	"github.com/sluice-bus/sluice/internal/pause"
)

const (
	leastBackoff = 100 * time.Millisecond
	mostBackoff  = 2 * time.Second
	// leaveWithin is how long the control plane may take to take note that
	// this sidecar leaves.
	leaveWithin = 500 * time.Millisecond
	// maxSent is how many reports are remembered to date their answers.
	maxSent = 1024
	// maxReported is how many topics and tenants with shares one message reports;
	// more go into another one.
	maxReported = 5000
)

type link = grpc.BidiStreamingClient[rlqs.RateLimitQuotaUsageReports, rlqs.RateLimitQuotaResponse]

// Run reports until ctx ends, over any number of connections; then it leaves in order. Call it
// once.
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
		level := slog.LevelDebug // the owner of the connection says that it is lost
		if status.Code(err) != codes.Unavailable {
			level = slog.LevelWarn
		}
		c.cfg.Logger.Log(ctx, level, "the control plane takes no usage reports; fleet-wide rates go by their fallback", "error", err, "again_in", wait)
		pause.For(ctx, wait)
	}
	return nil
}

// fallBack sends those to their fallback who wait for an answer that cannot come.
func (c *Client) fallBack() {
	now := time.Now()
	for _, v := range c.shares.Range {
		v.(*share).unanswered(nil, now)
	}
}

// serve keeps one stream.
func (c *Client) serve(ctx context.Context) error {
	// The stream outlives ctx by the time that leaving in order takes.
	streaming, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	streaming = metadata.AppendToOutgoingContext(streaming, policypb.QuotaNodeID, c.cfg.NodeID, policypb.QuotaInstance, c.cfg.Instance)
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

// leave stops acting by the shares, and then tells the control plane.
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

// apply applies an answer, and returns whether some of it is to be acknowledged at
// once.
func (c *Client) apply(m *rlqs.RateLimitQuotaResponse, now time.Time) (acknowledge bool) {
	for _, action := range m.GetBucketAction() {
		a, err := readAction(action)
		if err != nil {
			c.cfg.Logger.Warn("the control plane's quota assignment is not understood", "error", err)
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

// report sends the usage of all topics if it is regular, else of topics with urgent news.
func (c *Client) report(stream link, regular bool) error {
	now := time.Now()
	c.reports++
	message := &rlqs.RateLimitQuotaUsageReports{Domain: policypb.QuotaDomain}
	for _, v := range c.shares.Range {
		s := v.(*share)
		u, keep := s.report(c.reports, regular, now)
		if u != nil {
			message.BucketQuotaUsages = append(message.BucketQuotaUsages, u)
		}
		if len(message.BucketQuotaUsages) >= maxReported {
			if err := c.send(stream, message, now); err != nil {
				return err
			}
			c.reports++
			message = &rlqs.RateLimitQuotaUsageReports{Domain: policypb.QuotaDomain}
		}
		if !keep {
			c.forget(s)
		}
	}
	if regular && now.Sub(c.counters.since) >= countEvery {
		c.counters.collect(now, func(topic string) bool { _, ok := c.shares.Load(topic); return ok },
			func(u *usage) { message.BucketQuotaUsages = append(message.BucketQuotaUsages, u) })
	}
	return c.send(stream, message, now)
}

// send sends a report of the number that is the latest, unless it says nothing.
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
