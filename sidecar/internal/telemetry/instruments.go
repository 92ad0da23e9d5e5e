package telemetry

import (
	"go.opentelemetry.io/otel/metric"
)

// instruments are the contract's metrics, grouped by their labels.
type instruments struct {
	// By topic.
	published, duplicate, rejected metric.Int64ObservableCounter
	scheduled, tenants             metric.Int64ObservableGauge

	// By topic and group.
	delivered, acked, nacked, redelivered metric.Int64ObservableCounter
	deadLettered, passedOver, expired     metric.Int64ObservableCounter
	inflight, lag, paused, members        metric.Int64ObservableGauge
	oldestUnacked                         metric.Float64ObservableGauge

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

func newInstruments(meter metric.Meter) *instruments {
	b := builder{meter}
	return &instruments{
		published: b.total("sluice_events_published_total", "{event}",
			"Events accepted, without duplicates."),
		duplicate: b.total("sluice_events_duplicate_total", "{event}",
			"Events answered with the stored event of the same id."),
		rejected: b.total("sluice_events_rejected_total", "{event}",
			"Events refused, by error code."),
		scheduled: b.gauge("sluice_scheduled_events", "{event}",
			"Events that wait until they are due, of topics that this sidecar releases them for."),
		tenants: b.gauge("sluice_publish_tenants", "{tenant}",
			"Tenants of the topic that have a bucket of their own."),

		delivered: b.total("sluice_events_delivered_total", "{event}",
			"Events sent to the group's members, redeliveries included."),
		acked: b.total("sluice_events_acked_total", "{event}",
			"Events acked by the group."),
		nacked: b.total("sluice_events_nacked_total", "{event}",
			"Events nacked by the group."),
		redelivered: b.total("sluice_events_redelivered_total", "{event}",
			"Events sent to the group again."),
		deadLettered: b.total("sluice_events_dead_lettered_total", "{event}",
			"Events moved to the dead-letter topic."),
		passedOver: b.total("sluice_events_passed_over_total", "{event}",
			"Events that retention or compaction removed before the group got to them."),
		expired: b.total("sluice_events_expired_total", "{event}",
			"Events whose own ttl passed before the group settled them."),
		inflight: b.gauge("sluice_events_inflight", "{event}",
			"Events delivered to the group and not settled."),
		lag: b.gauge("sluice_group_lag", "{event}",
			"Events between the group's cursor and the head."),
		paused: b.gauge("sluice_group_paused", "",
			"1 where the topic's policy pauses the group."),
		members: b.gauge("sluice_group_members", "{member}",
			"Members of the group that are connected here; the sum over the store's sidecars is all of them."),
		oldestUnacked: must(meter.Float64ObservableGauge("sluice_group_oldest_unacked_seconds", metric.WithUnit("s"),
			metric.WithDescription("How long ago the oldest event that the group has here and has not settled was accepted; 0 without one."))),

		appendDuration: b.seconds("sluice_store_append_duration_seconds",
			"How long one batch took to become durable."),
		batchSize: must(meter.Int64Histogram("sluice_store_batch_size", metric.WithUnit("{event}"),
			metric.WithDescription("Events in one batch."), metric.WithExplicitBucketBoundaries(sizeBounds...))),
		spoolEvents: b.gauge("sluice_spool_events", "{event}",
			"Events that wait for the store."),
		spoolBytes: b.gauge("sluice_spool_bytes", "By",
			"Bytes that wait for the store."),
		connections: must(meter.Int64UpDownCounter("sluice_ws_connections", metric.WithUnit("{connection}"),
			metric.WithDescription("Open WebSocket connections."))),
		policyVersion: b.gauge("sluice_policy_version_info", "",
			"The version of each policy in force; always 1."),
		buildInfo: b.gauge("sluice_build_info", "",
			"The version of the sidecar, and the kind of its store; always 1."),
		storeUp: b.gauge("sluice_store_up", "",
			"1 while the store answers and takes events, 0 else."),
		authFailures: must(meter.Int64ObservableCounter("sluice_auth_failures_total", metric.WithUnit("{attempt}"),
			metric.WithDescription("Wrong tokens, and tokens that were not checked because their address had sent too many wrong ones."))),

		deadLetters: b.gauge("sluice_dead_letters", "{event}",
			"Dead letters of the topic, redriven ones included."),
		deadLetterAge: b.gauge("sluice_dead_letter_oldest_age_seconds", "s",
			"How long ago the topic's oldest dead letter died; 0 without any."),
		bufferedBytes: b.gauge("sluice_buffered_bytes", "By",
			"Memory of all connections: requests until they are answered, and deliveries until they are settled."),
		diskFree: b.gauge("sluice_disk_free_bytes", "By",
			"Free bytes of the disk of the embedded log, or of the spool."),
		diskLowWater: b.gauge("sluice_disk_low_water_bytes", "By",
			"Free bytes below which nothing is published to that disk."),
		diskShort: b.gauge("sluice_disk_short", "",
			"1 while publishes to that disk are refused, 0 else."),
		shed: b.counter("sluice_messages_refused_total", "{message}",
			"Messages and bodies refused before they were complete: there was too little memory, or they took too long."),
		refusedConnections: b.counter("sluice_connections_refused_total", "{connection}",
			"Connections refused because their listener had as many as it may."),

		outboxPublished: b.counter("sluice_outbox_published_total", "{document}",
			"Documents of the outbox whose events are durable."),
		outboxFailed: b.counter("sluice_outbox_failed_total", "{document}",
			"Documents of the outbox that were given up, by error code."),
		outboxDeferred: b.counter("sluice_outbox_deferred_total", "{refusal}",
			"Refusals of documents of the outbox that are tried again, by error code."),
		outboxPlaceLost: b.counter("sluice_outbox_place_lost_total", "{stream}",
			"Change streams of the outbox that lost their place in the oplog: all of the outbox was read, and another one followed."),

		capturePublished: b.counter("sluice_capture_published_total", "{change}",
			"Changes of the captured collection whose events are durable."),
		captureFailed: b.counter("sluice_capture_failed_total", "{change}",
			"Changes of the captured collection that were refused for good and left out, by error code."),
		captureDeferred: b.counter("sluice_capture_deferred_total", "{refusal}",
			"Refusals of changes of the captured collection that are tried again, by error code."),
		captureLag: b.gauge("sluice_capture_lag_seconds", "s",
			"For how long not every change of the collection has been captured; only of the sidecar that captures it."),
		captureStopped: b.gauge("sluice_capture_stopped", "",
			"1 while the capture waits for an operator: its place in the oplog is lost, or the collection was dropped; 0 else."),
	}
}

// sizeBounds end at the largest batch of the default configuration.
var sizeBounds = []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000}

// builder makes instruments. A name or a unit that OpenTelemetry refuses is a defect, and panics.
type builder struct{ metric.Meter }

func must[T any](made T, err error) T {
	if err != nil {
		panic(err)
	}
	return made
}

func (b builder) counter(name, unit, help string) metric.Int64Counter {
	return must(b.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(help)))
}

func (b builder) total(name, unit, help string) metric.Int64ObservableCounter {
	return must(b.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(help)))
}

func (b builder) gauge(name, unit, help string) metric.Int64ObservableGauge {
	return must(b.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(help)))
}

func (b builder) seconds(name, help string) metric.Float64Histogram {
	return must(b.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(help),
		metric.WithExplicitBucketBoundaries(durationBounds...)))
}
