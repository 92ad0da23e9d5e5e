package topiclist_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/sluice-bus/sluice/internal/policypb"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/topiclist"
	"github.com/sluice-bus/sluice/test/require"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// store is a log with topics that can be away.
type store struct {
	mu    sync.Mutex
	names []string
	away  bool
}

func (s *store) set(away bool, names ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away, s.names = away, names
}

func (s *store) Topics(context.Context) (list []eventlog.Topic, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		return nil, errors.New("away")
	}
	for _, name := range s.names {
		list = append(list, eventlog.Topic{Name: name})
	}
	return list, nil
}

// controlPlane requests pages, and ends the stream when it is told to.
type controlPlane struct {
	pages  chan *policypb.TopicsPage
	cut    chan struct{}
	stores chan string
}

func (c *controlPlane) serve(stream *grpc.GenericServerStream[policypb.TopicsPage, emptypb.Empty]) error {
	id, err := policypb.StreamValues(stream.Context(), policypb.StreamNodeID, policypb.StreamInstanceSecret, policypb.StreamStoreID)
	if err != nil {
		return err
	}
	c.stores <- id[2]
	received := make(chan error)
	go func() {
		for {
			var page *policypb.TopicsPage
			err := stream.Send(&emptypb.Empty{})
			if err == nil {
				page, err = stream.Recv()
			}
			if err != nil {
				received <- err
				return
			}
			c.pages <- page
		}
	}()
	select {
	case <-c.cut:
		go func() { <-received }()
		return errors.New("cut")
	case err := <-received:
		return err
	}
}

// run runs a reporter of a store with a control plane, in a bubble.
func run(t *testing.T, s *store, test func(*controlPlane)) {
	synctest.Test(t, func(t *testing.T) {
		c := &controlPlane{pages: make(chan *policypb.TopicsPage, 100), cut: make(chan struct{}), stores: make(chan string, 10)}
		server := grpc.NewServer()
		policypb.RegisterStream(server, policypb.TopicsService, policypb.TopicsStream, c.serve)
		listener := bufconn.Listen(64 << 10)
		go func() { _ = server.Serve(listener) }()
		defer server.Stop()
		conn, err := grpc.NewClient("passthrough:bufconn", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
		require.NoError(t, err)
		defer conn.Close()
		began := time.Now()
		r := topiclist.New(topiclist.Config{
			Conn: conn, NodeID: "n", InstanceSecret: "i", Log: s, Logger: slog.New(slog.DiscardHandler),
			StoreID: func() string {
				if time.Since(began) < time.Minute {
					return "" // a shared store that was not reached yet
				}
				return "s1"
			},
		})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		test(c)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func wantPage(t *testing.T, c *controlPlane, added, removed []string, last bool) {
	t.Helper()
	page := <-c.pages
	if !slices.Equal(page.GetAdded(), added) || !slices.Equal(page.GetRemoved(), removed) || page.GetLast() != last {
		t.Errorf("added %d, removed %v, last %v; want %d, %v, %v",
			len(page.GetAdded()), page.GetRemoved(), page.GetLast(), len(added), removed, last)
	}
}

func TestAllTopicsComeFirstAndThenTheChanges(t *testing.T) {
	s := &store{names: []string{"a", "b"}}
	run(t, s, func(c *controlPlane) {
		if got := <-c.stores; got != "s1" {
			t.Errorf("the store is %q", got)
		}
		wantPage(t, c, []string{"a", "b"}, nil, true)
		s.set(true)
		time.Sleep(time.Minute)
		s.set(false, "b", "c")
		wantPage(t, c, []string{"c"}, []string{"a"}, true)
		c.cut <- struct{}{} // while the reporter waits for a change
		<-c.stores
		wantPage(t, c, []string{"b", "c"}, nil, true)
	})
}

func TestManyTopicsComeInPages(t *testing.T) {
	s := &store{}
	for i := range 2500 {
		s.names = append(s.names, fmt.Sprintf("t%04d", i))
	}
	run(t, s, func(c *controlPlane) {
		wantPage(t, c, s.names[:1000], nil, false)
		wantPage(t, c, s.names[1000:2000], nil, false)
		wantPage(t, c, s.names[2000:], nil, true)
	})
}

func TestAnEmptyStoreSaysSo(t *testing.T) {
	run(t, &store{}, func(c *controlPlane) { wantPage(t, c, nil, nil, true) })
}

func TestASidecarWithoutItsStoreLetsAnotherBeAsked(t *testing.T) {
	s := &store{away: true}
	run(t, s, func(c *controlPlane) {
		<-c.stores
		<-c.stores // the first stream has ended
		s.set(false, "a")
		wantPage(t, c, []string{"a"}, nil, true)
	})
}
