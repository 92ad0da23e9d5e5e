package xds

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"golang.org/x/sync/errgroup"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/sluice-bus/sluice/internal/pause"
)

const (
	// maxVerdicts bounds the answers that wait to be sent. The stream of a server that sends that
	// many responses without reading one ends.
	maxVerdicts = 1024
	// maxReasons bounds the reasons that the server gets for a refused response.
	maxReasons = 8 << 10
)

// errReopen ends a stream so that the next one begins.
var errReopen = errors.New("another stream is needed")

// stream is one stream. One goroutine reads and another writes, and neither waits for the other:
// the client must not block a server that reads nothing while it sends.
type stream struct {
	c   *Client
	rpc discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient

	taken pause.Wake // there are updates to store

	mu       sync.Mutex
	verdicts []*discoveryv3.DeltaDiscoveryRequest // to be sent
	unkept   []taken
}

// taken is a response that is in force and not yet stored.
type taken struct {
	verdict *discoveryv3.DeltaDiscoveryRequest
	update  Update
}

// stream opens a stream, serves it until it ends, and returns why it ended.
func (c *Client) stream(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	g, ctx := errgroup.WithContext(ctx)
	slow := time.AfterFunc(firstAnswer, func() {
		cancel(fmt.Errorf("the control plane did not answer within %v", firstAnswer))
	})
	defer slow.Stop()

	rpc, err := discoveryv3.NewAggregatedDiscoveryServiceClient(c.cfg.Conn).
		DeltaAggregatedResources(ctx, grpc.MaxCallRecvMsgSize(c.cfg.MaxMessageBytes))
	if err != nil {
		return reason(ctx, err)
	}
	s := &stream{c: c, rpc: rpc, taken: pause.NewWake()}
	g.Go(func() error { return s.write(ctx) })
	g.Go(func() error { return reason(ctx, s.keep(ctx)) })
	g.Go(func() error {
		err := s.read(ctx, func() {
			slow.Stop()
			c.state.set(true, nil)
			c.cfg.Logger.Info("connected to the control plane")
		})
		return reason(ctx, err)
	})
	err = g.Wait()
	c.unkept(s.unkept)
	return err
}

// reason returns why the client gave up a stream, rather than the error that this caused.
func reason(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	if errors.Is(err, io.EOF) {
		return errors.New("the control plane closed the stream")
	}
	return err
}

// read applies responses. It calls first after the first one.
func (s *stream) read(ctx context.Context, first func()) error {
	later := time.AfterFunc(askLater, func() { s.c.Reopen("to request resources again that were refused before their time") })
	later.Stop()
	defer later.Stop()
	for n := 0; ; n++ {
		response, err := s.rpc.Recv()
		if err != nil {
			return err
		}
		s.c.state.answered(response.GetControlPlane().GetIdentifier())
		if n == 0 {
			first()
		}
		update, err := s.c.apply(ctx, response)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		verdict := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: response.GetTypeUrl(), ResponseNonce: response.GetNonce()}
		if err != nil {
			s.c.cfg.Logger.Error("an update of the control plane is refused; the policies in force stay",
				"type", response.GetTypeUrl(), "error", shortened(err.Error()))
			refuse(verdict, err)
		}
		if errors.Is(err, ErrLater) {
			later.Reset(askLater)
		}
		if err != nil || s.c.cfg.Keep == nil {
			err = s.answer(verdict)
		} else {
			err = s.keepFirst(taken{verdict, update})
		}
		if err != nil {
			return err
		}
	}
}

func refuse(verdict *discoveryv3.DeltaDiscoveryRequest, err error) {
	verdict.ErrorDetail = &rpcstatus.Status{Code: int32(codes.InvalidArgument), Message: shortened(err.Error())}
}

// keepFirst acknowledges a response once its update is stored.
func (s *stream) keepFirst(t taken) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.unkept) == maxVerdicts {
		return fmt.Errorf("%d responses were taken and cannot be kept", maxVerdicts)
	}
	s.unkept = append(s.unkept, t)
	s.taken.Set()
	return nil
}

// keep stores accepted updates, all that wait at a time, and then acknowledges them. The reader
// does not wait for it: updates act at once.
func (s *stream) keep(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.taken:
		}
		s.mu.Lock()
		n := len(s.unkept)
		s.mu.Unlock()
		kept, err := s.c.cfg.Keep(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !kept && err == nil {
			continue
		}
		s.mu.Lock()
		batch := s.unkept[:n]
		s.unkept = s.unkept[n:]
		s.mu.Unlock()
		if err != nil {
			s.c.unkept(batch)
		}
		for _, t := range batch {
			if err != nil {
				refuse(t.verdict, err)
			}
			if err := s.answer(t.verdict); err != nil {
				return err
			}
		}
	}
}

func shortened(reasons string) string {
	if len(reasons) > maxReasons {
		reasons = reasons[:maxReasons] + "…"
	}
	return strings.ToValidUTF8(reasons, "")
}

func (s *stream) answer(verdict *discoveryv3.DeltaDiscoveryRequest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.verdicts) == maxVerdicts {
		return fmt.Errorf("the control plane has not read the answers to %d responses", maxVerdicts)
	}
	s.verdicts = append(s.verdicts, verdict)
	s.c.wake.Set()
	return nil
}

func (s *stream) drainVerdicts() []*discoveryv3.DeltaDiscoveryRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.verdicts
	s.verdicts = nil
	return out
}

// write sends requests until the stream ends. If the server has ended it, the reader gets the
// reason.
func (s *stream) write(ctx context.Context) error {
	err := s.writeOn(ctx)
	if errors.Is(err, io.EOF) {
		return nil
	}
	return reason(ctx, err)
}

func (s *stream) writeOn(ctx context.Context) error {
	requests := s.c.begin()
	for {
		if len(requests) > 0 && s.c.unnamed.Swap(false) {
			requests[0].Node = s.c.cfg.Node()
		}
		if err := s.send(requests); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.c.wake:
		}
		if err := s.send(s.drainVerdicts()); err != nil {
			return err
		}
		var err error
		if requests, err = s.c.changes(); err != nil {
			return err
		}
	}
}

func (s *stream) send(requests []*discoveryv3.DeltaDiscoveryRequest) error {
	for _, r := range requests {
		if err := s.rpc.Send(r); err != nil {
			return err
		}
	}
	return nil
}

// begin returns the requests that open a stream.
func (c *Client) begin() (out []*discoveryv3.DeltaDiscoveryRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reopen = ""
	c.unnamed.Store(true)
	for _, k := range c.kinds {
		out = append(out, k.first())
	}
	return out
}

// changes returns the further requests. The error says that another stream is needed.
func (c *Client) changes() (out []*discoveryv3.DeltaDiscoveryRequest, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reopen != "" {
		return nil, fmt.Errorf("%w: %s", errReopen, c.reopen)
	}
	for _, k := range c.kinds {
		if k.wildcard() && k.again.has(wildcard) { // it cannot be requested by its name
			return nil, fmt.Errorf("%w: to request the resources of a refused update again", errReopen)
		}
		out = append(out, k.requests()...)
	}
	if len(out) == 0 && c.unnamed.Load() {
		// It changes no subscription.
		out = append(out, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: c.kinds[len(c.kinds)-1].URL})
	}
	return out, nil
}

// unkept records that updates are in force and not stored: the server has to send them again, on
// another stream.
func (c *Client) unkept(batch []taken) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range batch {
		c.kind(t.update.Type).unkept(&t.update)
	}
}

// apply puts a response in force completely, or returns why it does not.
func (c *Client) apply(ctx context.Context, response *discoveryv3.DeltaDiscoveryResponse) (Update, error) {
	update, err := updateOf(response)
	c.mu.Lock()
	k := c.kind(update.Type)
	if k == nil {
		c.mu.Unlock()
		return update, fmt.Errorf("resources of type %q are not known here", update.Type)
	}
	k.relevant(&update)
	update.Whole = k.wildcard() && k.completedBy(&update)
	news := len(update.Resources)+len(update.Removed) > 0 || update.Whole && !k.answered
	if err == nil {
		err = k.room(&update, c.cfg.MaxNames)
	}
	c.mu.Unlock()

	if err == nil && news {
		err = c.cfg.Apply(ctx, update)
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		k.refused(&update)
		return update, err
	}
	if k.accepted(&update) {
		c.wake.Set()
	}
	return update, nil
}

// updateOf reads a response. With an error too, the update has all readable names.
func updateOf(response *discoveryv3.DeltaDiscoveryResponse) (Update, error) {
	u := Update{Type: response.GetTypeUrl(), Version: response.GetSystemVersionInfo()}
	seen := make(names, len(response.GetResources()))
	var bad []error
	note := func(name string) bool {
		if name == "" || seen.has(name) {
			bad = append(bad, fmt.Errorf("%q is the name of no resource, or of two", name))
			return false
		}
		seen[name] = struct{}{}
		return true
	}
	for _, r := range response.GetResources() {
		if !note(r.GetName()) {
			continue
		}
		if got := r.GetResource().GetTypeUrl(); got != u.Type {
			bad = append(bad, fmt.Errorf("%q is of type %q, not %q", r.GetName(), got, u.Type))
		}
		u.Resources = append(u.Resources, Resource{Name: r.GetName(), Version: r.GetVersion(), Body: r.GetResource().GetValue()})
	}
	for _, name := range response.GetRemovedResources() {
		if note(name) {
			u.Removed = append(u.Removed, name)
		}
	}
	return u, errors.Join(bad...)
}
