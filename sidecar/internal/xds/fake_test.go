package xds_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/sluice-bus/sluice/sidecar/internal/xds"
	"github.com/sluice-bus/sluice/sidecar/internal/xds/xdstest"
)

// script is a connection whose one stream answers with what is put into it.
type script struct {
	responses chan *discoveryv3.DeltaDiscoveryResponse
	deaf      bool // it reads nothing

	mu       sync.Mutex
	requests []*discoveryv3.DeltaDiscoveryRequest
}

func (s *script) Invoke(context.Context, string, any, any, ...grpc.CallOption) error {
	return errors.New("not a stream")
}

func (s *script) NewStream(ctx context.Context, _ *grpc.StreamDesc, _ string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	return &scripted{script: s, ctx: ctx}, nil
}

func (s *script) asked(keep func(*discoveryv3.DeltaDiscoveryRequest) bool) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.requests {
		if keep(r) {
			n++
		}
	}
	return n
}

type scripted struct {
	*script
	ctx context.Context
}

func (s *scripted) Header() (metadata.MD, error) { return nil, nil }
func (s *scripted) Trailer() metadata.MD         { return nil }
func (s *scripted) CloseSend() error             { return nil }
func (s *scripted) Context() context.Context     { return s.ctx }

func (s *scripted) SendMsg(m any) error {
	if s.deaf {
		<-s.ctx.Done()
		return s.ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, m.(*discoveryv3.DeltaDiscoveryRequest))
	return nil
}

func (s *scripted) RecvMsg(m any) error {
	select {
	case r := <-s.responses:
		into := m.(*discoveryv3.DeltaDiscoveryResponse)
		into.TypeUrl, into.Nonce, into.Resources, into.RemovedResources = r.TypeUrl, r.Nonce, r.Resources, r.RemovedResources
		return nil
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
}

func resource(name, typeURL string) *discoveryv3.Resource {
	return &discoveryv3.Resource{Name: name, Version: "1", Resource: &anypb.Any{TypeUrl: typeURL}}
}

func TestStrangeResponsesAreRefused(t *testing.T) {
	s := &script{responses: make(chan *discoveryv3.DeltaDiscoveryResponse)}
	h := newHolder(t, newServer(t), func(cfg *xds.Config) { cfg.Conn, cfg.Logger = s, discard() }, "wanted")
	h.run(t)
	for i, r := range []*discoveryv3.DeltaDiscoveryResponse{
		{TypeUrl: "type.googleapis.com/other.Thing", Resources: []*discoveryv3.Resource{resource("a", "type.googleapis.com/other.Thing")}},
		{TypeUrl: globs, Resources: []*discoveryv3.Resource{resource("a*", topics)}},
		{TypeUrl: globs, Resources: []*discoveryv3.Resource{resource("", globs)}},
		{TypeUrl: globs, Resources: []*discoveryv3.Resource{resource("a*", globs), resource("a*", globs)}},
		{TypeUrl: globs, Resources: []*discoveryv3.Resource{resource("a*", globs)}, RemovedResources: []string{"a*"}},
		{TypeUrl: globs, Resources: []*discoveryv3.Resource{{Name: "a*", Version: "1"}}},
		{TypeUrl: globs, Resources: []*discoveryv3.Resource{nil}},
	} {
		r.Nonce = string(rune('a' + i))
		s.responses <- r
		xdstest.Soon(t, "a refusal of "+r.String(), func() bool {
			return s.asked(func(q *discoveryv3.DeltaDiscoveryRequest) bool {
				return xdstest.Refused(q) && q.GetResponseNonce() == r.Nonce && q.GetTypeUrl() == r.TypeUrl
			}) == 1
		})
	}
	if h.count() != 0 || !h.Connected() {
		t.Errorf("%d updates took effect; connected %v", h.count(), h.Connected())
	}
	s.responses <- &discoveryv3.DeltaDiscoveryResponse{TypeUrl: topics, Nonce: "z",
		Resources: []*discoveryv3.Resource{resource("unwanted", topics)}}
	xdstest.Soon(t, "what nobody asked for acknowledged", func() bool {
		return s.asked(func(q *discoveryv3.DeltaDiscoveryRequest) bool {
			return q.GetResponseNonce() == "z" && !xdstest.Refused(q)
		}) == 1
	})
	if h.count() != 0 {
		t.Error("it took effect")
	}
}

func TestAServerThatDoesNotAnswerIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{}
		h := newHolder(t, newServer(t), func(cfg *xds.Config) { cfg.Conn = s })
		stop := h.run(t)
		defer stop()
		time.Sleep(14 * time.Second)
		synctest.Wait()
		if err := h.State().Err; err != nil {
			t.Errorf("left too early: %v", err)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if err := h.State().Err; err == nil || !strings.Contains(err.Error(), "did not answer") {
			t.Errorf("got %v", err)
		}
	})
}

func TestAServerThatReadsNothingIsLeft(t *testing.T) {
	s := &script{responses: make(chan *discoveryv3.DeltaDiscoveryResponse), deaf: true}
	h := newHolder(t, newServer(t), func(cfg *xds.Config) { cfg.Conn, cfg.Logger = s, discard() })
	h.run(t)
	for range 1025 { // one more than wait for their answers
		s.responses <- &discoveryv3.DeltaDiscoveryResponse{TypeUrl: globs, Nonce: "n"}
	}
	xdstest.Soon(t, "the stream's end", func() bool {
		err := h.State().Err
		return err != nil && strings.Contains(err.Error(), "has not read the answers")
	})
}
