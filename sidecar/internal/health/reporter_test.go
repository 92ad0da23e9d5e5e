package health_test

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-bus/sluice/internal/health"
	"github.com/sluice-bus/sluice/internal/logging"
	"github.com/sluice-bus/sluice/internal/policypb"
	report "github.com/sluice-bus/sluice/sidecar/internal/health"
	"github.com/sluice-bus/sluice/test/require"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// received is a report, and what it makes of those before on its stream.
type received struct {
	*health.Report
	state *health.State
	size  int
}

// controlPlane serves reports until the next one after cut.
func controlPlane(t *testing.T, to chan<- received, cut <-chan struct{}) grpc.ClientConnInterface {
	serve := func(from *grpc.GenericServerStream[wrapperspb.BytesValue, emptypb.Empty]) error {
		id, err := policypb.StreamValues(from.Context(), policypb.StreamNodeID, policypb.StreamInstanceSecret)
		if err != nil || !slices.Equal(id, []string{"n", "i"}) {
			t.Errorf("the sidecar is %v, %v", id, err)
		}
		for state := (&health.State{}); ; {
			message, err := from.Recv()
			if err != nil {
				return err
			}
			r, err := health.Parse(message.GetValue())
			if err != nil {
				return err
			}
			state = state.Apply(r)
			select {
			case <-cut:
				return nil
			default:
				to <- received{r, state, len(message.GetValue())}
			}
		}
	}
	server := grpc.NewServer()
	policypb.RegisterStream(server, health.Service, health.Stream, serve)
	listener := bufconn.Listen(64 << 10)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient("passthrough:bufconn", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// All comes first, then every 5 s what has changed; a new stream begins with all again.
func TestReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reports, cut := make(chan received), make(chan struct{}, 1)
		handler, recent := logging.Keep(slog.DiscardHandler, health.MaxLogLines)
		log := slog.New(handler)
		state := health.State{Process: health.Process{StoreState: "ok"}}
		late, refused := health.Refusal{Topic: "orders", Code: "rate_limited"}, int64(3)
		r := report.New(report.Config{
			Conn: controlPlane(t, reports, cut), NodeID: "n", InstanceSecret: "i", Recent: recent, Logger: slog.New(slog.DiscardHandler),
			Look:    func(context.Context) health.State { return state },
			Refused: func() map[health.Refusal]int64 { return map[health.Refusal]int64{late: refused} },
		})
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()

		log.Warn("one")
		first := <-reports
		began := time.Now()
		if first.Process == nil || first.At != began.UnixMilli() || !slices.Equal(first.Refused, []health.Refused{{Refusal: late, Events: 3}}) {
			t.Errorf("the first report is %+v", first.Report)
		}
		if next := <-reports; next.Process != nil || next.size > 40 || time.Since(began) != health.Every {
			t.Errorf("without a change a report has %d bytes, after %v", next.size, time.Since(began))
		}
		state.Process.StoreState = "away"
		log.Error("two")
		if next := <-reports; next.state.Process.StoreState != "away" || len(next.Log) != 1 || len(next.state.Log) > 2 {
			t.Errorf("after a change: %+v", next.Report)
		}
		refused = 10
		if next := <-reports; !slices.Equal(next.Refused, []health.Refused{{Refusal: late, Events: 7}}) {
			t.Errorf("after seven more refusals: %+v", next.Report)
		}
		cut <- struct{}{}
		if next := <-reports; next.Refused != nil || next.Process == nil || next.state.Process.StoreState != "away" || len(next.Log) != 2 {
			t.Errorf("a new stream begins with %+v", next.Report)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
