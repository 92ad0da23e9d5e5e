package telemetry

import (
	"go.opentelemetry.io/otel/metric"

	"github.com/sluice-bus/sluice/internal/instrument"
)

// instruments are the contract's metrics, grouped by their labels.
type instruments struct {
	// By topic.
	published, duplicate, rejected metric.Int64ObservableCounter
	scheduled, tenants             metric.Int64ObservableGauge

	// By topic and group.
	delivered, acked, nacked, redelivered metric.Int64ObservableCounter
	deadLettered, passedOver, expired     metric.Int64ObservableCounter
	pushes                                metric.Int64ObservableCounter
	inflight, lag, paused, members        metric.Int64ObservableGauge
	oldestUnacked                         metric.Float64ObservableGauge

	// Of OpenTelemetry's conventions, by topic, and by topic and group.
	sent, consumed metric.Int64ObservableCounter

	// By topic, from the one sidecar of a store that counts them.
	deadLetters, deadLetterAge metric.Int64ObservableGauge

	// Of the sidecar.
	appendDuration          metric.Float64Histogram
	batchSize               metric.Int64Histogram
	spoolEvents, spoolBytes metric.Int64ObservableGauge
	connections             metric.Int64UpDownCounter
	policyVersion           metric.Int64ObservableGauge
	buildInfo, storeUp      metric.Int64ObservableGauge
	authFailures            metric.Int64ObservableCounter
	bufferedBytes           metric.Int64ObservableGauge
	diskFree, diskLowWater  metric.Int64ObservableGauge
	diskShort               metric.Int64ObservableGauge
	shed                    metric.Int64Counter
	refusedConnections      metric.Int64Counter

	// By outbox.
	outboxPublished, outboxFailed, outboxDeferred, outboxPlaceLost metric.Int64Counter

	// By captured collection.
	capturePublished, captureFailed, captureDeferred metric.Int64Counter
	captureLag, captureStopped                       metric.Int64ObservableGauge
}

func newInstruments(b *instrument.Builder) *instruments {
	return &instruments{
		published: b.Total("sluice_events_published_total", "{event}",
			"Events accepted, without duplicates.", "topic"),
		duplicate: b.Total("sluice_events_duplicate_total", "{event}",
			"Events answered with the stored event of the same id.", "topic"),
		rejected: b.Total("sluice_events_rejected_total", "{event}",
			"Events refused, by error code.", "topic", "code"),
		scheduled: b.Gauge("sluice_scheduled_events", "{event}",
			"Events that wait until they are due, of topics that this sidecar releases them for.", "topic"),
		tenants: b.Gauge("sluice_publish_tenants", "{tenant}",
			"Tenants of the topic that have a bucket of their own.", "topic"),

		delivered: b.Total("sluice_events_delivered_total", "{event}",
			"Events sent to the group's members, redeliveries included.", "topic", "group"),
		acked: b.Total("sluice_events_acked_total", "{event}",
			"Events acked by the group.", "topic", "group"),
		nacked: b.Total("sluice_events_nacked_total", "{event}",
			"Events nacked by the group.", "topic", "group"),
		redelivered: b.Total("sluice_events_redelivered_total", "{event}",
			"Events sent to the group again.", "topic", "group"),
		deadLettered: b.Total("sluice_events_dead_lettered_total", "{event}",
			"Events moved to the dead-letter topic.", "topic", "group"),
		passedOver: b.Total("sluice_events_passed_over_total", "{event}",
			"Events that retention or compaction removed before the group got to them.", "topic", "group"),
		expired: b.Total("sluice_events_expired_total", "{event}",
			"Events whose own ttl passed before the group settled them.", "topic", "group"),
		pushes: b.Total("sluice_push_requests_total", "{request}",
			"Requests to the group's endpoint of --push, by the status of their answers; away: no connection came about, none: no answer.",
			"topic", "group", "status"),
		inflight: b.Gauge("sluice_events_inflight", "{event}",
			"Events delivered to the group and not settled.", "topic", "group"),
		lag: b.Gauge("sluice_group_lag", "{event}",
			"Events between the group's cursor and the head.", "topic", "group"),
		paused: b.Gauge("sluice_group_paused", "",
			"1 where the topic's policy pauses the group.", "topic", "group"),
		members: b.Gauge("sluice_group_members", "{member}",
			"Members of the group that are connected here; the sum over the store's sidecars is all of them.", "topic", "group"),
		oldestUnacked: b.Seconds("sluice_group_oldest_unacked_seconds",
			"How long ago the oldest event that the group has here and has not settled was accepted; 0 without one.", "topic", "group"),

		sent: b.Total("messaging.client.sent.messages", "{message}",
			"Events that were published, duplicates included; with error.type, the error code, those that were refused.", sentLabels...),
		consumed: b.Total("messaging.client.consumed.messages", "{message}",
			"Events sent to the group's members, redeliveries included.", consumedLabels...),

		appendDuration: b.Durations("sluice_store_append_duration_seconds",
			"How long one append took to become durable.", durationBounds),
		batchSize: b.Sizes("sluice_store_batch_size", "{event}",
			"Events in one append: of a partition, or on the embedded log of all that wait.", sizeBounds),
		spoolEvents: b.Gauge("sluice_spool_events", "{event}",
			"Events that wait for the store."),
		spoolBytes: b.Gauge("sluice_spool_bytes", "By",
			"Bytes that wait for the store."),
		connections: b.Level("sluice_ws_connections", "{connection}",
			"Open WebSocket connections."),
		policyVersion: b.Gauge("sluice_policy_version_info", "",
			"The version of each policy in force; always 1.", "policy", "version", "source"),
		buildInfo: b.Gauge("sluice_build_info", "",
			"The version of the sidecar, and the kind of its store; always 1.", "version", "store"),
		storeUp: b.Gauge("sluice_store_up", "",
			"1 while the store answers and takes events, 0 else."),
		authFailures: b.Total("sluice_auth_failures_total", "{attempt}",
			"Wrong tokens, and tokens that were not checked because their address had sent too many wrong ones.", "outcome"),

		deadLetters: b.Gauge("sluice_dead_letters", "{event}",
			"Dead letters of the topic, redriven ones included.", "topic"),
		deadLetterAge: b.Gauge("sluice_dead_letter_oldest_age_seconds", "s",
			"How long ago the topic's oldest dead letter died; 0 without any.", "topic"),
		bufferedBytes: b.Gauge("sluice_buffered_bytes", "By",
			"Memory of all connections: requests until they are answered, and deliveries until they are settled."),
		diskFree: b.Gauge("sluice_disk_free_bytes", "By",
			"Free bytes of the disk of the embedded log, or of the spool."),
		diskLowWater: b.Gauge("sluice_disk_low_water_bytes", "By",
			"Free bytes below which nothing is published to that disk."),
		diskShort: b.Gauge("sluice_disk_short", "",
			"1 while publishes to that disk are refused, 0 else."),
		shed: b.Counter("sluice_messages_refused_total", "{message}",
			"Messages and bodies refused before they were complete: there was too little memory, or they took too long.", "reason"),
		refusedConnections: b.Counter("sluice_connections_refused_total", "{connection}",
			"Connections refused, or closed before their client was known: their identity, or the listener, had as many as it may.",
			"listener"),

		outboxPublished: b.Counter("sluice_outbox_published_total", "{document}",
			"Documents of the outbox whose events are durable.", "outbox"),
		outboxFailed: b.Counter("sluice_outbox_failed_total", "{document}",
			"Documents of the outbox that were given up, by error code.", "outbox", "code"),
		outboxDeferred: b.Counter("sluice_outbox_deferred_total", "{refusal}",
			"Refusals of documents of the outbox that are tried again, by error code.", "outbox", "code"),
		outboxPlaceLost: b.Counter("sluice_outbox_place_lost_total", "{stream}",
			"Change streams of the outbox that lost their place in the oplog: all of the outbox was read, and another one followed.", "outbox"),

		capturePublished: b.Counter("sluice_capture_published_total", "{change}",
			"Changes of the captured collection whose events are durable.", "capture", "topic"),
		captureFailed: b.Counter("sluice_capture_failed_total", "{change}",
			"Changes of the captured collection that were refused for good and left out, by error code.", "capture", "topic", "code"),
		captureDeferred: b.Counter("sluice_capture_deferred_total", "{refusal}",
			"Refusals of changes of the captured collection that are tried again, by error code.", "capture", "topic", "code"),
		captureLag: b.Gauge("sluice_capture_lag_seconds", "s",
			"For how long not every change of the collection has been captured; only of the sidecar that captures it.", "capture", "topic"),
		captureStopped: b.Gauge("sluice_capture_stopped", "",
			"1 while the capture waits for an operator: its place in the oplog is lost, or the collection was dropped; 0 else.", "capture", "topic"),
	}
}

// sizeBounds end at the largest batch of the default configuration.
var sizeBounds = []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000}

// Reference lists the sidecar's metrics.
func Reference() []instrument.Metric {
	b := instrument.On(nil)
	newInstruments(b)
	for _, h := range histograms {
		b.Made = append(b.Made, instrument.Metric{Name: h.name, Type: instrument.Histogram, Unit: "s", Help: h.help, Labels: h.labels})
	}
	return b.Made
}
