package sluicetest

import (
	"context"
	"errors"
	"slices"
	"testing"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/option"
	"github.com/sluice-bus/sluice/sdk/wire"
)

func open(t *testing.T, opts Options) (*Sidecar, *sluice.Client) {
	t.Helper()
	s := Start(opts)
	t.Cleanup(s.Close)
	client, err := sluice.Dial(t.Context(), s.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return s, client
}

func publish(t *testing.T, client *sluice.Client, events ...sluice.Event) {
	t.Helper()
	for _, e := range events {
		e.Topic, e.Payload = "orders", []byte("1")
		if _, err := client.Publish(t.Context(), &e); err != nil {
			t.Fatal(err)
		}
	}
}

// The sidecar in memory has the real rules for attempts, dead letters, conflicts and filters.
func TestTheRulesAreReal(t *testing.T) {
	s, client := open(t, Options{Policies: "- name: \"*\"\n  delivery: {max_attempts: 2, backoff: {min: 1ms, max: 1ms}}\n"})
	publish(t, client, sluice.Event{ID: "bad", Key: "a"}, sluice.Event{ID: "other", Key: "b"}, sluice.Event{ID: "bad", Key: "a"})
	if _, err := client.Publish(t.Context(), &sluice.Event{Topic: "orders", ID: "bad", Key: "a", Payload: []byte("2")}); !errors.Is(err,
		&wire.Error{Code: wire.Conflict}) {
		t.Errorf("another payload under the same id: %v", err)
	}
	attempts := make(chan int, 10)
	dead := make(chan sluice.Event, 1)
	if _, err := client.Subscribe(t.Context(), "orders.dlq", "", func(_ context.Context, m *sluice.Message) error {
		dead <- m.Event
		return nil
	}, option.FromEarliest()); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Subscribe(t.Context(), "orders", "g", func(_ context.Context, m *sluice.Message) error {
		if m.Event.ID != "bad" {
			t.Errorf("%s passed the filter", m.Event.ID)
		}
		attempts <- m.Attempt
		return errors.New("it never works")
	}, option.FromEarliest(), option.RetryFor(0), option.WithFilter(wire.Filter{Key: new("a")})); err != nil {
		t.Fatal(err)
	}
	e := <-dead
	if reason, _ := e.Headers.Get(wire.HeaderDeadReason); reason != "it never works" || <-attempts != 1 || <-attempts != 2 ||
		len(attempts) != 0 {
		t.Errorf("the dead letter %+v, after %d attempts more", e, len(attempts))
	}
	if n := len(s.Events("orders")); n != 2 {
		t.Errorf("%d events are stored", n)
	}
}

// A batch of which some are refused on the way keeps the places of its results.
func TestPartOfABatchIsRefused(t *testing.T) {
	s, _ := open(t, Options{Refuse: func(e *wire.Event) *wire.Error {
		if e.ID == "1" {
			return wire.Errorf(wire.TopicPaused, "paused")
		}
		return nil
	}})
	conn, err := sluice.DialConn(t.Context(), s.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	results, err := conn.PublishBatch(t.Context(), "orders", []wire.Event{{ID: "0", Payload: []byte("1")}, {ID: "1", Payload: []byte("1")},
		{ID: "2", Payload: []byte("1")}})
	if err != nil || len(results) != 3 || results[0].Receipt.ID != "0" || results[1].Err == nil || results[2].Receipt.ID != "2" {
		t.Fatalf("%+v, %v", results, err)
	}
	var ids []string
	for _, e := range s.Events("orders") {
		ids = append(ids, e.ID)
	}
	if !slices.Equal(ids, []string{"0", "2"}) {
		t.Errorf("stored are %v", ids)
	}
}

func TestStartPanicsOnPoliciesThatAreWrong(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("it started")
		}
	}()
	Start(Options{Policies: "- name: orders\n  partitions: -1\n"}).Close()
}
