package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/sluice-bus/sluice/test/otlptest"
)

// receive receives until the trace of the event has come, with the spans of both groups.
func receive(ctx context.Context) error {
	receiver, err := otlptest.Open()
	if err != nil {
		return err
	}
	defer receiver.Close()
	fmt.Println(receiver.Endpoint(otlptest.HTTP))

	drawing := otlptest.Drawing{Times: true, Attributes: []string{"messaging.consumer.group.name=group"}}
	if err := receiver.Await(ctx, whole); err != nil {
		return fmt.Errorf("%w; this much has come:\n%s", err, drawing.Tree(receiver.Spans()))
	}
	fmt.Printf("\nThe sidecar's spans: when each began, how long it took, ⇢ what it is linked to.\n\n%s", drawing.Tree(receiver.Spans()))
	return nil
}

// whole says whether all is there: one publish, delivered to one group once and to the other twice,
// and each of these deliveries settled.
func whole(receiver *otlptest.Receiver) bool {
	count := map[string]int{}
	for _, span := range receiver.Spans() {
		operation, _, _ := strings.Cut(span.Name, " ")
		count[operation]++
	}
	deliveries := len(groups) + 1
	return count["send"] == 1 && count["append"] == 1 && count["process"] == deliveries && count["settle"] == deliveries
}
