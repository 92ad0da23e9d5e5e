package daprapp

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/sluice-bus/sluice/internal/daprpb"
	"github.com/sluice-bus/sluice/sidecar/internal/cloudevent"
	"github.com/sluice-bus/sluice/sidecar/internal/delivery"
)

// grpcChannel is an application that serves gRPC.
type grpcChannel struct {
	conn  *grpc.ClientConn
	cfg   *Config
	app   daprpb.AppCallbackClient
	alpha daprpb.AppCallbackAlphaClient
}

func newGRPCChannel(cfg *Config) (*grpcChannel, error) {
	conn, err := grpc.NewClient("passthrough:///"+cfg.Address.Host, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithNoProxy(), grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: firstPause, Multiplier: 1.6, MaxDelay: mostPause},
			MinConnectTimeout: time.Second,
		}), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxList)))
	if err != nil {
		return nil, err
	}
	return &grpcChannel{conn: conn, cfg: cfg, app: daprpb.NewAppCallbackClient(conn), alpha: daprpb.NewAppCallbackAlphaClient(conn)}, nil
}

func (c *grpcChannel) close() { _ = c.conn.Close() }

// connected waits for a connection; the error is errAway if there is none to be had. A connection that breaks
// later breaks an answer, which counts an attempt.
func (c *grpcChannel) connected(ctx context.Context) error {
	for {
		switch state := c.conn.GetState(); state {
		case connectivity.Ready:
			return nil
		case connectivity.TransientFailure, connectivity.Shutdown:
			return errAway
		default:
			c.conn.Connect()
			if !c.conn.WaitForStateChange(ctx, state) {
				return ctx.Err()
			}
		}
	}
}

// call is the context of a call, with the sidecar's token.
func (c *grpcChannel) call(ctx context.Context) context.Context {
	if token := c.cfg.Token(); token != "" {
		return metadata.AppendToOutgoingContext(ctx, tokenHeader, token)
	}
	return ctx
}

func (c *grpcChannel) list(ctx context.Context) (list []Described, err error) {
	if err := c.connected(ctx); err != nil {
		return nil, err
	}
	answer, err := c.app.ListTopicSubscriptions(c.call(ctx), &emptypb.Empty{})
	switch {
	case status.Code(err) == codes.Unimplemented:
		return nil, nil
	case err != nil:
		return nil, err
	}
	for _, s := range answer.GetSubscriptions() {
		d := Described{
			PubsubName: s.GetPubsubName(), Topic: s.GetTopic(), DeadLetterTopic: s.GetDeadLetterTopic(), Metadata: s.GetMetadata(),
			Routes: Routes{Default: s.GetRoutes().GetDefault()},
			BulkSubscribe: BulkSubscribe{
				Enabled: s.GetBulkSubscribe().GetEnabled(), MaxMessagesCount: s.GetBulkSubscribe().GetMaxMessagesCount(),
				MaxAwaitDurationMS: s.GetBulkSubscribe().GetMaxAwaitDurationMs(),
			},
		}
		for _, r := range s.GetRoutes().GetRules() {
			d.Routes.Rules = append(d.Routes.Rules, Rule{Match: r.GetMatch(), Path: r.GetPath()})
		}
		list = append(list, d)
	}
	return list, nil
}

func (c *grpcChannel) give(ctx context.Context, b *batch) ([]verdict, error) {
	if err := c.connected(ctx); err != nil {
		return nil, err
	}
	ctx = c.call(ctx)
	if b.isBulk() {
		return c.giveBulk(ctx, b)
	}
	e := b.events[0]
	var answer *daprpb.TopicEventResponse
	err := c.traced(ctx, b, daprpb.AppCallback_OnTopicEvent_FullMethodName, func(ctx context.Context) (err error) {
		answer, err = c.app.OnTopicEvent(ctx, e.request(b.Topic, b.PubsubName, b.path))
		return err
	})
	if err != nil {
		return b.failed(err), nil
	}
	return []verdict{Verdict(answer.GetStatus())}, nil
}

// traced makes a call with its span, whose context it carries, else with that of its event.
func (c *grpcChannel) traced(ctx context.Context, b *batch, method string, call func(context.Context) error) error {
	md, _ := metadata.FromOutgoingContext(ctx)
	md = metadata.Join(md) // a copy
	set := func(name, value string) { md.Set(name, value) }
	if !b.isBulk() {
		c.cfg.Propagation.Inject(&b.events[0].Record.Event, set)
	}
	span := c.cfg.Tracing.Call(ctx, strings.TrimPrefix(method, "/"), set)
	err := call(metadata.NewOutgoingContext(ctx, md))
	span.End(status.Code(err).String(), err != nil)
	return err
}

// giveBulk calls the method for batches, or where there is none that of earlier SDKs.
func (c *grpcChannel) giveBulk(ctx context.Context, b *batch) ([]verdict, error) {
	req := &daprpb.TopicEventBulkRequest{
		Id: uuid.NewString(), Topic: b.Topic, PubsubName: b.PubsubName, Type: bulkType, Path: b.path,
		Metadata: map[string]string{"pubsubName": b.PubsubName},
	}
	for _, e := range b.events {
		in := &daprpb.TopicEventBulkRequestEntry{EntryId: e.Record.ID, ContentType: b.entryType()}
		if b.Raw {
			in.Event = &daprpb.TopicEventBulkRequestEntry_Bytes{Bytes: e.Payload}
		} else {
			in.Event = &daprpb.TopicEventBulkRequestEntry_CloudEvent{CloudEvent: &daprpb.TopicEventCERequest{
				Id: e.ID, Source: e.Source, Type: e.Type, SpecVersion: cloudevent.SpecVersion, DataContentType: e.ContentType, Data: e.Payload,
				Extensions: e.extensions(),
			}}
		}
		req.Entries = append(req.Entries, in)
	}
	var answer *daprpb.TopicEventBulkResponse
	err := c.traced(ctx, b, daprpb.AppCallback_OnBulkTopicEvent_FullMethodName, func(ctx context.Context) (err error) {
		answer, err = c.app.OnBulkTopicEvent(ctx, req)
		return err
	})
	if status.Code(err) == codes.Unimplemented {
		err = c.traced(ctx, b, daprpb.AppCallbackAlpha_OnBulkTopicEventAlpha1_FullMethodName, func(ctx context.Context) (err error) {
			answer, err = c.alpha.OnBulkTopicEventAlpha1(ctx, req)
			return err
		})
	}
	if err != nil {
		return b.failed(err), nil
	}
	statuses := make(map[string]string, len(answer.GetStatuses()))
	for _, s := range answer.GetStatuses() {
		statuses[s.GetEntryId()] = s.GetStatus().String()
	}
	return b.byEntry(statuses), nil
}

// failed are the verdicts of a call that failed.
func (b *batch) failed(err error) []verdict {
	s := status.Convert(err)
	if s.Code() == codes.Unimplemented {
		return b.all(delivery.Drop, "the application answers UNIMPLEMENTED")
	}
	return b.all(delivery.Nack, "the application answers %v: %.200s", s.Code(), s.Message())
}

// Verdict is the meaning of a status over gRPC.
func Verdict(s daprpb.TopicEventResponse_TopicEventResponseStatus) delivery.Outcome {
	if _, known := daprpb.TopicEventResponse_TopicEventResponseStatus_name[int32(s)]; !known {
		return verdict{Verdict: delivery.Nack, Reason: fmt.Sprintf("the application says status %d, which is none of Dapr's", s)}
	}
	return statusVerdict(s.String())
}
