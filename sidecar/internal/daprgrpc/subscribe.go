package daprgrpc

import (
	"context"
	"io"
	"sync"

	"google.golang.org/grpc"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/internal/daprpb"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/audit"
	"github.com/sluice-bus/sluice/sidecar/internal/daprapp"
	"github.com/sluice-bus/sluice/sidecar/internal/delivery"
	"github.com/sluice-bus/sluice/sidecar/internal/group"
	"github.com/sluice-bus/sluice/sidecar/internal/refusal"
	"github.com/sluice-bus/sluice/sidecar/internal/session"
)

// window is how many events of a stream its client has at a time.
const window = 100

// streams counts those under way. After wait has begun there are no new ones.
type streams struct {
	mu     sync.Mutex
	closed bool
	n      sync.WaitGroup
}

func (x *streams) begin() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.closed {
		x.n.Add(1)
	}
	return !x.closed
}

func (x *streams) wait() {
	x.mu.Lock()
	x.closed = true
	x.mu.Unlock()
	x.n.Wait()
}

type eventStream = grpc.BidiStreamingServer[daprpb.SubscribeTopicEventsRequestAlpha1, daprpb.SubscribeTopicEventsResponseAlpha1]

// SubscribeTopicEventsAlpha1 implements daprpb.DaprServer: the client is a member of its group for as long as the stream is.
func (s *Server) SubscribeTopicEventsAlpha1(stream eventStream) error {
	first := new(daprpb.SubscribeTopicEventsRequestAlpha1)
	if err := s.receive(stream, first); err != nil {
		return s.refuse(err)
	}
	if !s.streams.begin() {
		return s.refuse(refusal.Stopping())
	}
	defer s.streams.n.Done()
	c := callOf(stream.Context())
	caller := c.caller
	if err := c.held.TryTake(streamWindow); err != nil { // the answers
		return s.refuse(err)
	}
	// A server of gRPC has one bound for the messages of all calls, and no word of one that is under way. So the places bound what
	// clients hold by answers that are as large, and do not come whole.
	if err := caller.Share().Enter(budget.DaprStreams); err != nil {
		return s.refuse(err)
	}
	defer caller.Share().Leave(budget.DaprStreams)
	sub, name, err := s.check(caller, first.GetInitialRequest())
	if err != nil && sub.Topic != "" {
		caller.Note(caller.Identity(), audit.Subscribe, sub.Topic, name, err)
	}
	if err == nil {
		err = s.serve(stream, caller, &sub, name)
	}
	if err != nil {
		return s.refuse(err)
	}
	return nil
}

// check reads the initial request, and checks whether the caller may have the subscription.
func (s *Server) check(caller *session.Session, first *daprpb.SubscribeTopicEventsRequestInitialAlpha1) (
	sub daprapp.Subscription, name string, err error,
) {
	switch {
	case first == nil:
		return sub, "", wire.Errorf(wire.BadRequest, "the first message of the stream must be initial_request")
	case s.cfg.AppID == "":
		return sub, "", wire.Errorf(wire.BadRequest,
			"subscriptions need the application's name, which begins those of its consumer groups: start the sidecar with --dapr-app-id")
	}
	described := daprapp.Described{
		PubsubName: first.GetPubsubName(), Topic: first.GetTopic(), Metadata: first.GetMetadata(), DeadLetterTopic: first.GetDeadLetterTopic(),
	}
	if sub, err = described.Check(false); err != nil {
		return sub, "", wire.Errorf(wire.BadRequest, "the subscription cannot be served: %v", err)
	}
	name = daprapp.GroupOf(s.cfg.AppID, sub.PubsubName)
	if bad := codec.CheckGroup(name); bad != nil {
		return sub, "", bad
	}
	return sub, name, daprapp.Allowed(caller.Identity(), sub.Topic, name, sub.DeadLetterTopic)
}

// serve gives events to the client until one side ends the stream, or the caller loses its right.
func (s *Server) serve(stream eventStream, caller *session.Session, sub *daprapp.Subscription, name string) error {
	ctx, cancel := caller.While(stream.Context(), access.Subscribe, sub.Topic, name)
	defer cancel()
	giving, abort := context.WithCancel(s.over)
	c := &carrier{stream: stream, appID: s.cfg.AppID, sub: sub, expected: map[string][]chan delivery.Outcome{}}
	note := func(action string, err error) { caller.Note(caller.Identity(), action, sub.Topic, name, err) }
	m, err := delivery.Subscribe(caller.Attribute(ctx), giving, delivery.Config{
		Topic: sub.Topic, Group: name, DeadLetterTopic: sub.DeadLetterTopic, Name: s.cfg.AppID + " at " + caller.From, Address: caller.From,
		Carrier: c, Window: window, Batch: 1, Groups: s.cfg.Groups, Policies: s.cfg.Policies, Share: caller.Share(),
		Logger: s.cfg.Logger, Note: note,
	})
	if err != nil {
		abort()
		return err
	}
	err = stream.Send(&daprpb.SubscribeTopicEventsResponseAlpha1{
		SubscribeTopicEventsResponseType: &daprpb.SubscribeTopicEventsResponseAlpha1_InitialResponse{
			InitialResponse: &daprpb.SubscribeTopicEventsResponseInitialAlpha1{},
		},
	})
	if err != nil {
		abort()
		m.Leave(group.Unsubscribed)
		return err
	}
	m.Start()
	received := make(chan error, 1)
	go func() { received <- c.receive() }() // which ends with the stream at the latest
	how := group.Unsubscribed
	select {
	case <-s.stopping.Done(): // the client answers for its events
		go func() {
			<-received
			abort()
		}()
		m.Leave(how)
		return refusal.Stopping()
	case err = <-received:
		if err == io.EOF { // the client has said that it ends
			err = nil
		} else {
			how = group.Disconnected
		}
	case <-ctx.Done():
		err, how = context.Cause(ctx), group.Disconnected
	}
	// There will be no more answers. A client that does not read is left only once the stream has ended.
	abort()
	s.streams.n.Go(func() { m.Leave(how) })
	return err
}

// carrier brings the events of a subscription to the client of its stream.
type carrier struct {
	stream eventStream
	appID  string
	sub    *daprapp.Subscription

	sending sync.Mutex // a stream has one sender at a time

	mu sync.Mutex
	// expected are the answers that are waited for, by the event's id, in the order in which the events were sent.
	expected map[string][]chan delivery.Outcome
}

// Carry implements delivery.Carrier.
func (c *carrier) Carry(ctx context.Context, ds []group.Delivery) ([]delivery.Outcome, error) {
	event := daprapp.TopicEvent(&ds[0].Record.Event, c.appID, c.sub)
	answer := c.expect(event.GetId())
	defer c.forget(event.GetId(), answer)
	c.sending.Lock()
	err := c.stream.Send(&daprpb.SubscribeTopicEventsResponseAlpha1{
		SubscribeTopicEventsResponseType: &daprpb.SubscribeTopicEventsResponseAlpha1_EventMessage{EventMessage: event},
	})
	c.sending.Unlock()
	if err != nil {
		return nil, err
	}
	select {
	case outcome := <-answer:
		return []delivery.Outcome{outcome}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (c *carrier) expect(id string) chan delivery.Outcome {
	answer := make(chan delivery.Outcome, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expected[id] = append(c.expected[id], answer)
	return answer
}

func (c *carrier) forget(id string, answer chan delivery.Outcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, other := range c.expected[id] {
		if other == answer {
			c.expected[id] = append(c.expected[id][:i:i], c.expected[id][i+1:]...)
		}
	}
	if len(c.expected[id]) == 0 {
		delete(c.expected, id)
	}
}

// receive takes the client's answers until the stream ends. An answer that nobody waits for comes too late.
func (c *carrier) receive() error {
	for {
		in, err := c.stream.Recv()
		if err != nil {
			return err
		}
		processed := in.GetEventProcessed()
		if processed == nil {
			return wire.Errorf(wire.BadRequest, "the stream has its initial_request already: all other messages must be event_processed")
		}
		c.mu.Lock()
		if waiting := c.expected[processed.GetId()]; len(waiting) > 0 {
			waiting[0] <- daprapp.Verdict(processed.GetStatus().GetStatus())
			c.expected[processed.GetId()] = waiting[1:]
		}
		c.mu.Unlock()
	}
}
