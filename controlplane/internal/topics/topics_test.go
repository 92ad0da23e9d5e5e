package topics_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/sluice-bus/sluice/controlplane/internal/topics"
	"github.com/sluice-bus/sluice/internal/policypb"
	"github.com/sluice-bus/sluice/test/require"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sink notes what it receives.
type sink struct {
	mu    sync.Mutex
	calls []string
}

func (s *sink) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, fmt.Sprintf(format, args...))
}

func (s *sink) SetTopics(store string, names []string) { s.note("%s = %v", store, names) }
func (s *sink) ChangeTopics(store string, added, removed []string) {
	s.note("%s + %v - %v", store, added, removed)
}
func (s *sink) EndTopics(store string) { s.note("%s ends", store) }

// want checks what the sink has received since the last call, once all is quiet.
func (s *sink) want(t *testing.T, calls ...string) {
	t.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.calls, calls) {
		t.Errorf("got %q, want %q", s.calls, calls)
	}
	s.calls = nil
}

// sidecar is the stream of a sidecar.
type sidecar struct {
	t    *testing.T
	link *grpc.GenericClientStream[policypb.TopicsPage, emptypb.Empty]
	stop context.CancelFunc
}

func (s sidecar) send(last bool, added []string, removed ...string) {
	s.t.Helper()
	if _, err := s.link.Recv(); err != nil {
		s.t.Fatal(err)
	}
	if err := s.link.Send(&policypb.TopicsPage{Added: added, Removed: removed, Last: last}); err != nil {
		s.t.Fatal(err)
	}
}

// run runs a server in a bubble; dial connects another sidecar to it.
func run(t *testing.T, test func(t *testing.T, s *sink, dial func(node, store string) sidecar)) {
	synctest.Test(t, func(t *testing.T) {
		s := &sink{}
		server := grpc.NewServer()
		topics.New(topics.Config{Sink: s, Logger: slog.New(slog.DiscardHandler), Admit: func(_ context.Context, node, _ string) error {
			if node == "stranger" {
				return status.Error(codes.PermissionDenied, "no")
			}
			return nil
		}}).Register(server)
		listener := bufconn.Listen(64 << 10)
		go func() { _ = server.Serve(listener) }()
		defer server.Stop()
		conn, err := grpc.NewClient("passthrough:bufconn", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
		require.NoError(t, err)
		defer conn.Close()
		test(t, s, func(node, store string) sidecar {
			ctx, stop := context.WithCancel(t.Context())
			ctx = metadata.AppendToOutgoingContext(ctx,
				policypb.StreamNodeID, node, policypb.StreamInstanceSecret, "i", policypb.StreamStoreID, store)
			stream, err := conn.NewStream(ctx, &policypb.TopicsStream, policypb.TopicsMethod)
			require.NoError(t, err)
			synctest.Wait()
			return sidecar{t, &grpc.GenericClientStream[policypb.TopicsPage, emptypb.Empty]{ClientStream: stream}, stop}
		})
	})
}

func TestOneSidecarOfAStoreIsAsked(t *testing.T) {
	run(t, func(t *testing.T, s *sink, dial func(node, store string) sidecar) {
		a, b, other := dial("a", "s1"), dial("b", "s1"), dial("c", "s2")
		a.send(false, []string{"x", "y"})
		s.want(t) // half a list is none
		a.send(true, []string{"z"})
		s.want(t, "s1 = [x y z]")
		a.send(true, []string{"w"}, "x", "y")
		s.want(t, "s1 + [w] - [x y]")
		other.send(true, nil)
		s.want(t, "s2 = []")
		a.stop()
		s.want(t, "s1 ends")
		b.send(true, []string{"z"})
		s.want(t, "s1 = [z]")
	})
}

func TestAStoreThatIsSlowToListDoesNotKeepOthersFromIt(t *testing.T) {
	run(t, func(t *testing.T, s *sink, dial func(node, store string) sidecar) {
		var slow []sidecar
		for i := range 16 {
			slow = append(slow, dial("n", fmt.Sprintf("slow%d", i)))
		}
		next := dial("n", "next")
		slow[7].stop()
		synctest.Wait()
		next.send(true, []string{"x"})
		s.want(t, "next = [x]")
	})
}

func TestBadReportsAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		node, store string
		page        *policypb.TopicsPage
		want        codes.Code
		says        string
	}{
		"no store":       {"a", "", &policypb.TopicsPage{}, codes.InvalidArgument, "metadata sluice-store-id"},
		"another's id":   {"stranger", "s", &policypb.TopicsPage{}, codes.PermissionDenied, "no"},
		"no topic":       {"a", "s", &policypb.TopicsPage{Added: []string{"ok", "a b"}}, codes.InvalidArgument, "added[1]: "},
		"too many names": {"a", "s", &policypb.TopicsPage{Removed: make([]string, 1001)}, codes.InvalidArgument, "1001 topics"},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T, s *sink, dial func(node, store string) sidecar) {
				from := dial(c.node, c.store)
				_ = from.link.Send(c.page) // the stream may have ended
				var err error
				for err == nil {
					_, err = from.link.Recv()
				}
				if status.Code(err) != c.want || !strings.Contains(err.Error(), c.says) {
					t.Errorf("got %v, want %v %q", err, c.want, c.says)
				}
				s.want(t)
			})
		})
	}
}
