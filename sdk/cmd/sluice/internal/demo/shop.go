package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/option"
)

// The shop's topics. Each service but orders has a group of its own name.
const (
	ordersPlaced  = "orders.placed"
	paymentsTaken = "payments.taken"
	parcelsSent   = "parcels.sent"
)

// mailTakes is how long the service mail needs for one mail: it keeps up with the load's mean, and not with its peak.
const mailTakes = 50 * time.Millisecond

// order is the payload of all three topics.
type order struct {
	Order    int     `json:"order"`
	Customer string  `json:"customer"`
	Total    float64 `json:"total"`
}

// shop is the services.
type shop struct {
	schedule Schedule
	began    time.Time
	at       []*sluice.Client // the sidecars
	say      func(format string, args ...any)
}

// Run runs the shop at sidecars until ctx ends. say gets what happens, a sentence at a time.
func Run(ctx context.Context, sidecars []string, schedule Schedule, say func(format string, args ...any)) error {
	s := &shop{schedule: schedule, began: time.Now(), say: say}
	err := s.run(ctx, sidecars)
	for _, client := range s.at {
		client.Close()
	}
	if ctx.Err() != nil { // which is the ordinary end
		return nil
	}
	return err
}

func (s *shop) run(ctx context.Context, sidecars []string) error {
	for _, url := range sidecars {
		client, err := sluice.Dial(ctx, url, sluice.WithWait(), sluice.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			return err
		}
		s.at = append(s.at, client)
	}
	if err := s.subscribe(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	deployed := make(chan struct{})
	go func() {
		defer close(deployed)
		s.deploy(ctx)
	}()
	err := s.placeOrders(ctx)
	cancel()
	<-deployed
	return err
}

// sidecar is the one beside a service's instance.
func (s *shop) sidecar(instance int) *sluice.Client { return s.at[instance%len(s.at)] }

// subscribe starts the services that consume: payments has an instance at each sidecar.
func (s *shop) subscribe(ctx context.Context) error {
	for _, client := range s.at {
		if _, err := client.Subscribe(ctx, ordersPlaced, "payments", sluice.JSON(s.takePayment(client)),
			option.FromEarliest(), option.Concurrency(8), option.RetryFor(0)); err != nil {
			return err
		}
	}
	if _, err := s.sidecar(2).Subscribe(ctx, paymentsTaken, "shipping", sluice.JSON(s.sendParcel), option.FromEarliest(),
		option.Concurrency(8)); err != nil {
		return err
	}
	_, err := s.sidecar(0).Subscribe(ctx, ordersPlaced, "mail", sendMail, option.FromEarliest())
	return err
}

// placeOrders is the service orders. It publishes as many orders as the schedule says; where the topic's limit refuses one, the
// client waits and tries again.
func (s *shop) placeOrders(ctx context.Context) error {
	const every = 250 * time.Millisecond
	tick := time.NewTicker(every)
	defer tick.Stop()
	due, placed := 0.0, 0
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		due += s.schedule.rate(time.Since(s.began)) * every.Seconds()
		var events []sluice.Event
		for ; due >= 1; due-- {
			placed++
			o := order{placed, fmt.Sprint("customer-", placed%47), float64(500+placed%4500) / 100}
			e, err := o.event(ordersPlaced, fmt.Sprintf("order-%x-%d", s.began.UnixMilli(), placed))
			if err != nil {
				return err
			}
			events = append(events, e)
		}
		if _, err := s.sidecar(0).PublishBatch(ctx, events); err != nil {
			return err
		}
	}
}

// event is the order as an event of a topic.
func (o order) event(topic, id string, causes ...string) (sluice.Event, error) {
	payload, err := json.Marshal(o)
	return sluice.Event{Topic: topic, ID: id, Key: o.Customer, Payload: payload, CausedBy: causes}, err
}

// takePayment is the service payments.
func (s *shop) takePayment(client *sluice.Client) func(context.Context, *sluice.Message, order) error {
	return func(ctx context.Context, m *sluice.Message, o order) error {
		if s.schedule.bad(time.Since(s.began)) {
			return errors.New("payments 1.7.0: unknown currency EUR")
		}
		return publish(ctx, client, o, paymentsTaken, "payment-"+m.Event.ID, m.Event.ID)
	}
}

// sendParcel is the service shipping.
func (s *shop) sendParcel(ctx context.Context, m *sluice.Message, o order) error {
	return publish(ctx, s.sidecar(2), o, parcelsSent, "parcel-"+m.Event.ID, m.Event.ID)
}

// publish publishes an order under an id that is made of its cause's: a cause that is delivered twice has one effect.
func publish(ctx context.Context, client *sluice.Client, o order, topic, id, cause string) error {
	e, err := o.event(topic, id, cause)
	if err == nil {
		_, err = client.Publish(ctx, &e)
	}
	return err
}

// sendMail is the service mail, the slow one.
func sendMail(ctx context.Context, _ *sluice.Message) error {
	select {
	case <-time.After(mailTakes):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// deploy says when payments has a bad deployment, and has what failed delivered again after it.
func (s *shop) deploy(ctx context.Context) {
	for start := s.schedule.FirstBad; ; start += s.schedule.BadEvery {
		if !s.waitUntil(ctx, start) {
			return
		}
		s.say("payments 1.7.0 is deployed, and it is bad: for %v no payment succeeds, and orders become dead letters.", s.schedule.BadFor)
		if !s.waitUntil(ctx, start+s.schedule.BadFor) {
			return
		}
		s.say("payments is rolled back to 1.6.9. Its dead letters wait for %v.", s.schedule.RedriveAfter)
		if !s.waitUntil(ctx, start+s.schedule.BadFor+s.schedule.RedriveAfter) {
			return
		}
		n, err := s.sidecar(0).HTTP().Redrive(ctx, ordersPlaced, admin.DeadLetterSelection{Group: "payments"}, nil)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			s.say("The dead letters were not redriven: %v", err)
		default:
			s.say("%d dead letters of the group payments were redriven: they are delivered to it again.", n)
		}
	}
}

// waitUntil returns false where ctx ends before that much of the demo has passed.
func (s *shop) waitUntil(ctx context.Context, passed time.Duration) bool {
	select {
	case <-time.After(passed - time.Since(s.began)):
		return true
	case <-ctx.Done():
		return false
	}
}
