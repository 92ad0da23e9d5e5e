package sluicetest

import (
	"context"
	"errors"
	"strings"
	"testing"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/option"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/testkit"
)

// TestAProcessIsKilled: events that were answered OK outlive the process. An event that was being
// handled comes again as another attempt. Requests can be refused as in memory.
func TestAProcessIsKilled(t *testing.T) {
	s, client := open(t, Options{Program: testkit.SidecarProgram.Binary(t), Refuse: func(e *wire.Event) *wire.Error {
		if e.ID == "refused" {
			return wire.Errorf(wire.TopicPaused, "paused")
		}
		return nil
	}})
	publish(t, client, sluice.Event{ID: "a", Key: "k"})
	attempts := make(chan int)
	if _, err := client.Subscribe(t.Context(), "orders", "g", func(ctx context.Context, m *sluice.Message) error {
		attempts <- m.Attempt
		if m.Attempt > 1 {
			return nil
		}
		<-ctx.Done() // the connection is lost
		return ctx.Err()
	}, option.FromEarliest()); err != nil {
		t.Fatal(err)
	}
	if n := <-attempts; n != 1 {
		t.Errorf("attempt %d", n)
	}
	s.Restart()
	if n := <-attempts; n != 2 {
		t.Errorf("attempt %d after the kill", n)
	}
	publish(t, client, sluice.Event{ID: "b", Key: "k"})
	<-attempts
	if events := s.Events("orders"); len(events) != 2 || events[0].ID != "a" || events[1].ID != "b" {
		t.Errorf("the topic has %+v", events)
	}
	if _, err := client.Publish(t.Context(), &sluice.Event{Topic: "orders", ID: "refused", Payload: []byte("1")}); !errors.Is(err,
		sluice.ErrTopicPaused) {
		t.Errorf("a publish that is to be refused: %v", err)
	}
}

func TestStartSaysWhatAProcessSaid(t *testing.T) {
	defer func() {
		if said, _ := recover().(string); !strings.Contains(said, "partitions") {
			t.Errorf("it said %q", said)
		}
	}()
	Start(Options{Program: testkit.SidecarProgram.Binary(t), Policies: "- name: orders\n  partitions: -1\n"}).Close()
}
