package telemetry

import (
	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

// The metrics of OpenTelemetry's conventions for messaging repeat some of the sidecar's own under the names and labels that are
// the same for every messaging system, so that dashboards of several systems show this one, too.

var messagingSystem = semconv.MessagingSystemKey.String("sluice")

// semanticLabels are those of an operation on a topic.
func semanticLabels(operation, topic string, more ...attribute.KeyValue) labels {
	return newLabels(append(more, messagingSystem, semconv.MessagingOperationName(operation), semconv.MessagingDestinationName(topic))...)
}

// semanticGroup is the label of a group; subscriptions without one have none.
func semanticGroup(group string) (of []attribute.KeyValue) {
	if group != "" {
		of = append(of, semconv.MessagingConsumerGroupName(group))
	}
	return of
}

// The names of the labels, for the reference.
var (
	topicLabels    = []string{"topic"}
	groupLabels    = []string{"topic", "group"}
	sentLabels     = []string{"messaging.system", "messaging.operation.name", "messaging.destination.name", "error.type"}
	durationLabels = sentLabels[:3]
	consumedLabels = append(durationLabels[:3:3], "messaging.consumer.group.name")
)
