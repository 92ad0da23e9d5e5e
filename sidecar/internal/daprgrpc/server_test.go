package daprgrpc

import (
	"context"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/sluice-bus/sluice/internal/daprpb"
	"github.com/sluice-bus/sluice/sidecar/internal/audit"
	"github.com/sluice-bus/sluice/sidecar/internal/gateway/gatewaytest"
	"github.com/sluice-bus/sluice/sidecar/internal/tracing"
	"github.com/sluice-bus/sluice/test/lockedbuffer"
	"github.com/sluice-bus/sluice/test/require"
)

type (
	request = daprpb.SubscribeTopicEventsRequestAlpha1
	stream  = grpc.BidiStreamingClient[request, daprpb.SubscribeTopicEventsResponseAlpha1]
)

// fixture is a server, and a client of it.
type fixture struct {
	daprpb.DaprClient
	conn    *grpc.ClientConn
	server  *Server
	sidecar *gatewaytest.Sidecar
}

func start(t *testing.T, with func(*Config)) *fixture {
	t.Helper()
	return startWith(t, gatewaytest.Setup{}, with)
}

func startWith(t *testing.T, setup gatewaytest.Setup, with func(*Config)) *fixture {
	t.Helper()
	setup.DaprAppID, setup.Policies = "shop", `[{"name":"*","publish":{"rate":0},`+
		`"connection":{"rate":0},"partitions":1,"delivery":{"max_attempts":2,"backoff":{"min":"1ms","max":"1ms"}}}]`
	sidecar := gatewaytest.Start(t, setup)
	cfg := Config{
		Sessions: sidecar.Gateway.Sessions, Publish: sidecar.Gateway.Publish, Groups: sidecar.Groups, Policies: sidecar.Policies,
		AppID: "shop", NodeID: "node", Version: "v1", DrainTimeout: gatewaytest.Patience, ReceiveTimeout: gatewaytest.Patience,
		Logger: slog.New(slog.DiscardHandler),
	}
	if with != nil {
		with(&cfg)
	}
	f := &fixture{server: New(cfg), sidecar: sidecar}
	ln := bufconn.Listen(1 << 20)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- f.server.Serve(ctx, ln) }()
	var err error
	f.conn, err = grpc.NewClient("passthrough:///test", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return ln.DialContext(ctx) }))
	require.NoError(t, err)
	f.DaprClient = daprpb.NewDaprClient(f.conn)
	t.Cleanup(func() {
		_ = f.conn.Close()
		soon, done := context.WithTimeout(context.Background(), gatewaytest.Patience)
		defer done()
		f.server.Shutdown(soon)
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return f
}

func (f *fixture) publish(t *testing.T, id, data string, meta ...string) {
	t.Helper()
	_, err := f.PublishEvent(metadata.AppendToOutgoingContext(t.Context(), meta...), &daprpb.PublishEventRequest{
		PubsubName: "p", Topic: "t", Data: []byte(data), DataContentType: "application/json",
		Metadata: map[string]string{"cloudevent.id": id},
	})
	require.NoError(t, err)
}

func wantCode(t *testing.T, err error, code codes.Code, part string) {
	t.Helper()
	if s := status.Convert(err); s.Code() != code || !strings.Contains(s.Message(), part) {
		t.Errorf("%v, want %v with %q", err, code, part)
	}
}

// stream begins a subscription with metadata, and returns the server's first answer.
func (f *fixture) stream(t *testing.T, first *request, meta ...string) (stream, error) {
	t.Helper()
	s, err := f.SubscribeTopicEventsAlpha1(metadata.AppendToOutgoingContext(t.Context(), meta...))
	require.NoError(t, err)
	if err := s.Send(first); err != io.EOF { // that one says that the stream has ended, and the answer says why
		require.NoError(t, err)
	}
	_, err = s.Recv()
	return s, err
}

func initial(topic string, deadLetters ...string) *request {
	in := &daprpb.SubscribeTopicEventsRequestInitialAlpha1{PubsubName: "p", Topic: topic}
	if len(deadLetters) > 0 {
		in.DeadLetterTopic = &deadLetters[0]
	}
	return &request{SubscribeTopicEventsRequestType: &daprpb.SubscribeTopicEventsRequestAlpha1_InitialRequest{InitialRequest: in}}
}

func processed(id string, how daprpb.TopicEventResponse_TopicEventResponseStatus) *request {
	return &request{SubscribeTopicEventsRequestType: &daprpb.SubscribeTopicEventsRequestAlpha1_EventProcessed{
		EventProcessed: &daprpb.SubscribeTopicEventsRequestProcessedAlpha1{Id: id, Status: &daprpb.TopicEventResponse{Status: how}},
	}}
}

func TestWhatIsNotHere(t *testing.T) {
	f := start(t, nil)
	err := f.conn.Invoke(t.Context(), "/dapr.proto.runtime.v1.Dapr/GetState", &emptypb.Empty{}, &emptypb.Empty{})
	wantCode(t, err, codes.Unimplemented, "GetState")
	err = f.conn.Invoke(t.Context(), "/other.Service/Call", &emptypb.Empty{}, &emptypb.Empty{})
	wantCode(t, err, codes.Unimplemented, "this is Sluice")
	about, err := f.GetMetadata(t.Context(), &daprpb.GetMetadataRequest{})
	require.NoError(t, err)
	if about.GetId() != "shop" || about.GetRuntimeVersion() != "v1" || len(about.GetRegisteredComponents()) != 1 {
		t.Errorf("%v", about)
	}
}

// An entry is told apart by its id. One that cannot be stored is named, and the others are stored. Each call has a line
// in the access log, with the topic.
func TestBulkPublish(t *testing.T) {
	var lines lockedbuffer.Buffer
	f := start(t, func(cfg *Config) {
		log, err := audit.Open([]string{"*"}, "", slog.New(slog.NewTextHandler(&lines, nil)))
		require.NoError(t, err)
		cfg.Sessions.Audit = log
	})
	entries := func(ids ...string) *daprpb.BulkPublishRequest {
		in := &daprpb.BulkPublishRequest{PubsubName: "p", Topic: "t"}
		for _, id := range ids {
			data := "1"
			if strings.HasPrefix(id, "bad") {
				data = "{"
			}
			in.Entries = append(in.Entries, &daprpb.BulkPublishRequestEntry{EntryId: id, Event: []byte(data), ContentType: "application/json"})
		}
		return in
	}
	out, err := f.BulkPublishEvent(t.Context(), entries("a", "bad1", "b", "bad2"))
	require.NoError(t, err)
	var failed []string
	for _, e := range out.GetFailedEntries() {
		failed = append(failed, e.GetEntryId())
	}
	if !slices.Equal(failed, []string{"bad1", "bad2"}) {
		t.Errorf("failed are %v", failed)
	}
	_, err = f.BulkPublishEventAlpha1(t.Context(), entries("a", "a"))
	wantCode(t, err, codes.InvalidArgument, "entry_id of entry 1")
	_, err = f.BulkPublishEvent(t.Context(), entries("a", ""))
	wantCode(t, err, codes.InvalidArgument, "entry_id of entry 1")
	_, err = f.BulkPublishEvent(t.Context(), entries())
	wantCode(t, err, codes.InvalidArgument, "")
	if n := lines.Count("topic=t"); n != 4 {
		t.Errorf("4 calls have %d lines:\n%s", n, lines.String())
	}
}

// The trace of a call is its event's, in the format that the sidecar is told.
func TestTraceOfACall(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	f := start(t, nil)
	f.publish(t, "a", "1", "traceparent", parent, "tracestate", "x=1", "baggage", "u=2", "shop", "no header of the event")
	none := start(t, func(c *Config) { c.Propagation = tracing.NewPropagation(propagation.Baggage{}) })
	none.publish(t, "a", "1", "traceparent", parent, "baggage", "u=2")
	for x, want := range map[*fixture]string{f: parent + " x=1 u=2 ", none: "  u=2 "} {
		rec, err := x.sidecar.Log.Lookup(t.Context(), "t", "a")
		require.NoError(t, err)
		got := ""
		for _, name := range []string{"traceparent", "tracestate", "baggage", "shop"} {
			value, _ := rec.Headers.Get(name)
			got += value + " "
		}
		if strings.TrimSpace(got) != strings.TrimSpace(want) {
			t.Errorf("the event has %q, want %q", got, want)
		}
	}
}

func TestBadSubscriptions(t *testing.T) {
	f := start(t, nil)
	_, err := f.stream(t, processed("a", daprpb.TopicEventResponse_SUCCESS))
	wantCode(t, err, codes.InvalidArgument, "the first message of the stream must be initial_request")
	_, err = f.stream(t, initial("t", "t"))
	wantCode(t, err, codes.InvalidArgument, "the subscription cannot be served")
	_, err = f.stream(t, initial("a b"))
	wantCode(t, err, codes.InvalidArgument, "topic")
	s, err := f.stream(t, initial("t"))
	require.NoError(t, err)
	require.NoError(t, s.Send(initial("t")))
	_, err = s.Recv()
	wantCode(t, err, codes.InvalidArgument, "has its initial_request already")
	nameless := start(t, func(c *Config) { c.AppID = "" })
	_, err = nameless.stream(t, initial("t"))
	wantCode(t, err, codes.InvalidArgument, "--dapr-app-id")
}

// Answers settle their events: a retry comes again. One for an event that is not there is ignored.
func TestAnswers(t *testing.T) {
	f := start(t, nil)
	s, err := f.stream(t, initial("t"))
	require.NoError(t, err)
	f.publish(t, "a", "1")
	f.publish(t, "b", "2")
	next := func() string {
		t.Helper()
		in, err := s.Recv()
		require.NoError(t, err)
		if got := in.GetEventMessage(); got.GetTopic() != "t" || got.GetPubsubName() != "p" {
			t.Errorf("%v", got)
		}
		return in.GetEventMessage().GetId()
	}
	if got := []string{next(), next()}; !slices.Contains(got, "a") || !slices.Contains(got, "b") { // in any order: they have no key
		t.Errorf("%v, want a and b", got)
	}
	require.NoError(t, s.Send(processed("c", daprpb.TopicEventResponse_SUCCESS)))
	require.NoError(t, s.Send(processed("a", daprpb.TopicEventResponse_SUCCESS)))
	require.NoError(t, s.Send(processed("b", daprpb.TopicEventResponse_RETRY)))
	if id := next(); id != "b" {
		t.Errorf("%s comes again, want b", id)
	}
	require.NoError(t, s.Send(processed("b", daprpb.TopicEventResponse_SUCCESS)))
	require.NoError(t, s.CloseSend())
	if _, err := s.Recv(); err != io.EOF {
		t.Errorf("the stream ends with %v", err)
	}
	again, err := f.stream(t, initial("t"))
	require.NoError(t, err)
	f.publish(t, "d", "3")
	if in, err := again.Recv(); err != nil || in.GetEventMessage().GetId() != "d" {
		t.Errorf("%v, %v; want d: the others are acked", in, err)
	}
}

// A sidecar that stops lets clients answer for what they have, and takes no new streams.
func TestShutdown(t *testing.T) {
	f := start(t, nil)
	s, err := f.stream(t, initial("t"))
	require.NoError(t, err)
	f.publish(t, "a", "1")
	_, err = s.Recv()
	require.NoError(t, err)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		soon, done := context.WithTimeout(context.Background(), gatewaytest.Patience)
		defer done()
		f.server.Shutdown(soon)
	}()
	<-f.server.stopping.Done()
	select {
	case <-stopped:
		t.Error("the sidecar does not wait for the answer")
	case <-time.After(50 * time.Millisecond):
	}
	_, err = f.stream(t, initial("t"))
	wantCode(t, err, codes.Unavailable, "")
	require.NoError(t, s.Send(processed("a", daprpb.TopicEventResponse_SUCCESS)))
	<-stopped
	_, err = s.Recv()
	wantCode(t, err, codes.Unavailable, "")
}
