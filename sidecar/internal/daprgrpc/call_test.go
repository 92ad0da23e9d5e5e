package daprgrpc

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/internal/daprpb"
	"github.com/sluice-bus/sluice/internal/listen"
	"github.com/sluice-bus/sluice/sidecar/internal/gateway/gatewaytest"
	"github.com/sluice-bus/sluice/test/require"
)

// begin begins a call whose message does not come.
func (f *fixture) begin(t *testing.T, token, method string) grpc.ClientStream {
	t.Helper()
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(t.Context(), "dapr-api-token", token))
	t.Cleanup(cancel)
	s, err := f.conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, "/"+daprpb.Dapr_ServiceDesc.ServiceName+"/"+method)
	require.NoError(t, err)
	return s
}

// startShared starts a server for the identities app and other, whose shares have room for so many messages each.
func startShared(t *testing.T, messages int64, with func(*Config)) (*fixture, *budget.Budget) {
	b := budget.New(budget.Bounds{Memory: budget.SharesOfAll * messages * (9 << 20), Places: budget.DefaultPlaces(), Identities: true})
	const rights = "publish: [t], subscribe: [t]"
	auth := gatewaytest.AuthOf(t, "tokens:\n"+gatewaytest.Entry("app", rights)+gatewaytest.Entry("other", rights))
	return startWith(t, gatewaytest.Setup{Access: auth.Access, Budget: b}, with), b
}

// TestTheCallerIsKnownBeforeItsMessage: every call without a valid token is refused before anything of its message has come, and
// the error has its details.
func TestTheCallerIsKnownBeforeItsMessage(t *testing.T) {
	f, b := startShared(t, 4, nil)
	for _, m := range append(description().Streams, grpc.StreamDesc{StreamName: "GetState"}) {
		for _, token := range []string{"", "wrong"} {
			err := f.begin(t, token, m.StreamName).RecvMsg(new(emptypb.Empty))
			wantCode(t, err, codes.Unauthenticated, "token")
			details := status.Convert(err).Details()
			if info, ok := append(details, nil)[0].(*errdetails.ErrorInfo); !ok || info.GetReason() != "UNAUTHORIZED" {
				t.Errorf("%s: the details are %v", m.StreamName, details)
			}
		}
	}
	if b.Used() != 0 {
		t.Errorf("%d bytes are counted", b.Used())
	}
}

// TestMessagesHaveRoom: a message counts as the largest until it has come. Who has no room for another one is told whose bound it
// is, and others are served.
func TestMessagesHaveRoom(t *testing.T) {
	f, b := startShared(t, 2, nil)
	calls := []grpc.ClientStream{f.begin(t, "app", "PublishEvent"), f.begin(t, "app", "BulkPublishEvent")}
	for b.Used() < int64(len(calls)*f.server.maxMessage()) {
		time.Sleep(time.Millisecond)
	}
	err := f.begin(t, "app", "PublishEvent").RecvMsg(new(emptypb.Empty))
	wantCode(t, err, codes.Unavailable, `"app" together may hold`)
	in := &daprpb.PublishEventRequest{PubsubName: "p", Topic: "t", Data: []byte("1")}
	_, err = f.PublishEvent(metadata.AppendToOutgoingContext(t.Context(), "dapr-api-token", "other"), in)
	require.NoError(t, err)
	require.NoError(t, calls[0].SendMsg(in))
	require.NoError(t, calls[0].CloseSend())
	require.NoError(t, calls[0].RecvMsg(new(emptypb.Empty)))
	_, err = f.PublishEvent(metadata.AppendToOutgoingContext(t.Context(), "dapr-api-token", "app"), in)
	require.NoError(t, err)
}

// TestLateMessage: a call whose message does not come ends, and gives its room back.
func TestLateMessage(t *testing.T) {
	f, b := startShared(t, 2, func(c *Config) { c.ReceiveTimeout = 10 * time.Millisecond })
	err := f.begin(t, "app", "PublishEvent").RecvMsg(new(emptypb.Empty))
	wantCode(t, err, codes.InvalidArgument, "did not arrive completely within 10ms")
	for b.Used() > 0 {
		time.Sleep(time.Millisecond)
	}
}

// TestStreamsArePlaces: a subscription takes a place of its identity.
func TestStreamsArePlaces(t *testing.T) {
	places := budget.DefaultPlaces()
	places[budget.DaprStreams] = 2 * budget.SharesOfAll
	rights := gatewaytest.Entry("app", "subscribe: [t]") + gatewaytest.Entry("other", "subscribe: [t]")
	f := startWith(t, gatewaytest.Setup{
		Access: gatewaytest.AuthOf(t, "tokens:\n"+rights).Access,
		Budget: budget.New(budget.Bounds{Memory: 1 << 30, Places: places, Identities: true}),
	}, nil)
	subscribe := func(token string) error {
		_, err := f.stream(t, initial("t"), "dapr-api-token", token)
		return err
	}
	require.NoError(t, subscribe("app"))
	require.NoError(t, subscribe("app"))
	wantCode(t, subscribe("app"), codes.Unavailable, "2 streams of Dapr's API")
	require.NoError(t, subscribe("other"))
}

// TestMetadataIsBounded: it comes before the caller is known.
func TestMetadataIsBounded(t *testing.T) {
	f, _ := startShared(t, 2, nil)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "dapr-api-token", "app", "x-long", strings.Repeat("x", listen.MaxHeadBytes))
	_, err := f.PublishEvent(ctx, &daprpb.PublishEventRequest{PubsubName: "p", Topic: "t", Data: []byte("1")})
	wantCode(t, err, codes.Internal, fmt.Sprintf("maximum size (%d bytes) set by server", listen.MaxHeadBytes))
}
