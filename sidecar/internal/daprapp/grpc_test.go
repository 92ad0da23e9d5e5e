package daprapp

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/sluice-bus/sluice/internal/daprpb"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/require"
)

// grpcApplication is an application that serves gRPC, with bulk under its earlier name alone.
type grpcApplication struct {
	daprpb.UnimplementedAppCallbackServer
	daprpb.UnimplementedAppCallbackAlphaServer
	subs   []*daprpb.TopicSubscription
	tokens chan []string
	answer func(*daprpb.TopicEventRequest) (daprpb.TopicEventResponse_TopicEventResponseStatus, error)
	bulk   func(*daprpb.TopicEventBulkRequest) (*daprpb.TopicEventBulkResponse, error)
}

func (a *grpcApplication) ListTopicSubscriptions(ctx context.Context, _ *emptypb.Empty) (*daprpb.ListTopicSubscriptionsResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	select {
	case a.tokens <- md.Get("dapr-api-token"):
	default:
	}
	return &daprpb.ListTopicSubscriptionsResponse{Subscriptions: a.subs}, nil
}

func (a *grpcApplication) OnTopicEvent(_ context.Context, in *daprpb.TopicEventRequest) (*daprpb.TopicEventResponse, error) {
	said, err := a.answer(in)
	return &daprpb.TopicEventResponse{Status: said}, err
}

func (a *grpcApplication) OnBulkTopicEventAlpha1(_ context.Context, in *daprpb.TopicEventBulkRequest) (
	*daprpb.TopicEventBulkResponse, error,
) {
	return a.bulk(in)
}

// start serves the application; ":0" picks a port.
func (a *grpcApplication) start(t testing.TB, addr string) (at string, stop func()) {
	t.Helper()
	ln, err := net.Listen("tcp", addr)
	require.NoError(t, err)
	server := grpc.NewServer()
	daprpb.RegisterAppCallbackServer(server, a)
	daprpb.RegisterAppCallbackAlphaServer(server, a)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(ln) })
	stop = sync.OnceFunc(func() {
		server.Stop()
		serving.Wait()
	})
	t.Cleanup(stop)
	return ln.Addr().String(), stop
}

// The answers of an application over gRPC settle as those over HTTP do, and it may go away and come back.
func TestGRPC(t *testing.T) {
	s := newSidecar(t, quick)
	given := make(chan *daprpb.TopicEventRequest, 10)
	var mu sync.Mutex
	attempts := map[string]int{}
	attempt := func(id string) int {
		mu.Lock()
		defer mu.Unlock()
		attempts[id]++
		return attempts[id]
	}
	app := &grpcApplication{
		tokens: make(chan []string, 1),
		subs: []*daprpb.TopicSubscription{
			{PubsubName: "p", Topic: "t", DeadLetterTopic: "dead", Routes: &daprpb.TopicRoutes{
				Rules: []*daprpb.TopicRule{{Match: `event.type == "x"`, Path: "x"}}, Default: "other"}},
			{PubsubName: "p", Topic: "b", BulkSubscribe: &daprpb.BulkSubscribeConfig{
				Enabled: true, MaxMessagesCount: 2, MaxAwaitDurationMs: 60_000}},
		},
		answer: func(in *daprpb.TopicEventRequest) (daprpb.TopicEventResponse_TopicEventResponseStatus, error) {
			given <- in
			nth := attempt(in.GetId())
			switch in.GetId() {
			case "drop":
				return daprpb.TopicEventResponse_DROP, nil
			case "unimplemented":
				return 0, status.Error(codes.Unimplemented, "no handler")
			case "error":
				return 0, status.Error(codes.Unavailable, "not now")
			case "strange":
				return 7, nil
			case "retry":
				if nth == 1 {
					return daprpb.TopicEventResponse_RETRY, nil
				}
			}
			return daprpb.TopicEventResponse_SUCCESS, nil
		},
		bulk: func(in *daprpb.TopicEventBulkRequest) (*daprpb.TopicEventBulkResponse, error) {
			out := &daprpb.TopicEventBulkResponse{}
			for _, e := range in.GetEntries() {
				if e.GetCloudEvent().GetId() != e.GetEntryId() || string(e.GetCloudEvent().GetData()) != "1" {
					return nil, fmt.Errorf("%v", e)
				}
				if nth := attempt(e.GetEntryId()); e.GetEntryId() != "silent" || nth > 1 {
					out.Statuses = append(out.Statuses, &daprpb.TopicEventBulkResponseEntry{EntryId: e.GetEntryId()})
				}
			}
			return out, nil
		},
	}
	addr, stop := app.start(t, "127.0.0.1:0")
	s.runApp(t, "grpc://"+addr, Config{Token: func() string { return "secret" }})
	subscribed := func() bool { return s.lag(t, "t") == 0 && s.lag(t, "b") == 0 }
	eventually(t, "it has subscribed", subscribed)
	if token := <-app.tokens; len(token) != 1 || token[0] != "secret" {
		t.Errorf("the application is shown the token %q", token)
	}
	s.publish(t, "t", "ok", "k", wire.Header{Name: "ce-type", Value: "x"}, wire.Header{Name: "ce-tenant", Value: "acme"})
	in := <-given
	extensions := in.GetExtensions().GetFields()
	if extensions["tenant"].GetStringValue() != "acme" || extensions["pubsubname"].GetStringValue() != "p" {
		t.Errorf("%v", extensions)
	}
	in.Extensions = nil
	if want := (&daprpb.TopicEventRequest{
		Id: "ok", Source: "app", Type: "x", SpecVersion: "1.0", DataContentType: "application/json", Data: []byte("1"),
		Topic: "t", PubsubName: "p", Path: "x",
	}); !proto.Equal(in, want) {
		t.Errorf("%v, want %v", in, want)
	}
	for id, times := range map[string]int{"drop": 1, "unimplemented": 1, "error": 3, "strange": 3, "retry": 2} {
		s.publish(t, "t", id, id)
		for range times {
			if in := <-given; in.GetId() != id || in.GetPath() != "other" {
				t.Errorf("%s: %v", id, in)
			}
		}
		eventually(t, "it is settled", func() bool { return s.lag(t, "t") == 0 })
	}
	if n := len(s.stored(t, "dead")); n != 4 {
		t.Errorf("%d dead letters", n)
	}
	s.publish(t, "b", "one", "1")
	s.publish(t, "b", "silent", "2")
	eventually(t, "one is settled", func() bool { return s.lag(t, "b") == 1 })
	s.publish(t, "b", "two", "3")
	eventually(t, "both are settled", func() bool { return s.lag(t, "b") == 0 })

	stop()
	for i := range 5 {
		s.publish(t, "t", fmt.Sprint("e", i), fmt.Sprint(i))
	}
	eventually(t, "it is found not to answer", func() bool { return strings.Contains(s.logged.String(), "does not answer") })
	app.start(t, addr)
	for range 5 {
		<-given
	}
	eventually(t, "all are settled", func() bool { return s.lag(t, "t") == 0 })
	if n := len(s.stored(t, "dead")); n != 4 {
		t.Errorf("%d dead letters after a restart", n)
	}
}
