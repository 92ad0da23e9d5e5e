package health

// These are the alerts, by what Prometheus has to scrape for them. An incident's alert holds for longer before it
// fires than its kind lasts before it shows: people are woken by one.

var sidecarAlerts = []Alert{
	{
		name: "SluiceSidecarDown", severity: Critical, wait: "2m",
		expr:    `up{job="sluice-sidecar"} == 0`,
		summary: `Sidecar {{ $labels.instance }} does not answer`,
		description: "Its ops listener has not been scraped for 2 minutes. The application beside it cannot publish; its consumer " +
			"groups go on at other sidecars of the store.",
	},
	{
		name: "SluicePublishErrors", severity: Critical, wait: "5m",
		expr:        `sum by (instance, code) (rate(sluice_events_rejected_total{code=~"internal|store_unavailable|overloaded"}[2m])) > 0`,
		summary:     `Sidecar {{ $labels.instance }} refuses publishes: {{ $labels.code }}`,
		description: "{{ $value | humanize }} events a second are refused through no fault of their publishers.",
	},
	{
		name: "SluicePublishesRefusedByLimit", severity: Warning, kind: "refused", wait: "15m",
		expr: `sum by (topic) (rate(sluice_events_rejected_total{code="rate_limited"}[10m]))
  > 0.1 * sum by (topic) (rate(sluice_events_published_total[10m]))
    and sum by (topic) (rate(sluice_events_rejected_total{code="rate_limited"}[10m])) > 1`,
		summary:     `More than a tenth of {{ $labels.topic }} is over its limit`,
		description: "{{ $value | humanize }} events a second have been refused with rate_limited for a quarter of an hour.",
	},
	{
		name: "SluiceTokensGuessed", severity: Warning, wait: "5m",
		expr:    `sum by (instance) (rate(sluice_auth_failures_total[5m])) > 1`,
		summary: `Somebody guesses tokens at {{ $labels.instance }}`,
		description: "{{ $value | humanize }} tokens a second are wrong, or are not checked because their address has sent too many " +
			"wrong ones.",
	},
	{
		name: "SluiceDiskFull", severity: Critical, kind: "disk_low", wait: "1m",
		expr:    `sluice_disk_short == 1`,
		summary: `The disk of sidecar {{ $labels.instance }} is full`,
		description: "Less than --disk-low-water is free: publishes to it are refused with overloaded, reason disk, until there is " +
			"more.",
	},
	{
		name: "SluiceDiskNearlyFull", severity: Warning, kind: "disk_low", wait: "5m",
		expr:        `sluice_disk_free_bytes < 2 * sluice_disk_low_water_bytes and on (instance) sluice_disk_short == 0`,
		summary:     `The disk of sidecar {{ $labels.instance }} is nearly full`,
		description: "{{ $value | humanize1024 }}B are free, less than twice --disk-low-water; below that publishes are refused.",
	},
	{
		name: "SluiceConnectionsRefused", severity: Warning, wait: "5m",
		expr: `sum by (instance) (rate(sluice_messages_refused_total[5m])) > 0
  or sum by (instance) (rate(sluice_connections_refused_total[5m])) > 0`,
		summary: `Sidecar {{ $labels.instance }} refuses connections or messages`,
		description: "{{ $value | humanize }} a second exceed a bound or do not arrive completely in time: a client sends, or does not " +
			"read, far more than usual.",
	},
	{
		name: "SluiceStoreAway", severity: Critical, kind: "store_away", wait: "2m",
		expr:        `sluice_store_up == 0`,
		summary:     `The store of sidecar {{ $labels.instance }} is away, full or has failed`,
		description: "Nothing is delivered there; publishes are spooled or refused, as their topics' policies say.",
	},
	{
		name: "SluiceSpoolNotEmptied", severity: Warning, kind: "spooling", wait: "10m",
		expr:        `sluice_spool_events > 0 and on (instance) sluice_store_up == 1`,
		summary:     `Sidecar {{ $labels.instance }} still has spooled events, though its store is back`,
		description: "{{ $value | humanize }} events are on its disk and nowhere else.",
	},
	{
		name: "SluiceSpoolGrowing", severity: Critical, kind: "spooling", wait: "5m",
		expr: `sluice_spool_bytes > 0 and deriv(sluice_spool_bytes[10m]) > 0
  and predict_linear(sluice_spool_bytes[10m], 3600) > 4294967296`,
		summary: `The spool of sidecar {{ $labels.instance }} will be full within an hour`,
		description: "At the pace of the last 10 minutes {{ $value | humanize1024 }}B pass --spool-max-bytes (4 GiB by default); from " +
			"then on publishes are refused with overloaded.",
	},
	{
		name: "SluiceSpoolNearlyFull", severity: Critical, kind: "spooling", wait: "1m",
		expr:    `sluice_spool_bytes > 0.8 * 1073741824`,
		summary: `The spool of sidecar {{ $labels.instance }} holds {{ $value | humanize1024 }}B`,
		description: "A topic may have 1 GiB there by default (spool_max_bytes), all together 4 GiB (--spool-max-bytes). Past them " +
			"publishes are refused with overloaded.",
	},
	{
		name: "SluiceAppendSlow", severity: Warning, wait: "10m",
		expr:    `instance:sluice_store_append_duration_seconds:p99_5m > 1`,
		summary: `The store of sidecar {{ $labels.instance }} is slow`,
		description: "One batch in a hundred takes longer than {{ $value | humanizeDuration }} to become durable. Past --store-timeout " +
			"(5 s) the store counts as away.",
	},
}

var groupAlerts = []Alert{
	{
		name: "SluiceGroupLagGrowing", severity: Warning, kind: "lag_growing", wait: "15m",
		expr: `topic_group:sluice_group_lag:sum > 1000
  and deriv(topic_group:sluice_group_lag:sum[15m]) > 0
  unless on (topic, group) sluice_group_paused == 1`,
		summary:     `Group {{ $labels.group }} of {{ $labels.topic }} falls behind`,
		description: "It lags by {{ $value | humanize }} events, and the lag has grown for half an hour.",
	},
	{
		name: "SluiceGroupStuck", severity: Warning, kind: "group_stuck", wait: "15m",
		expr: `topic_group:sluice_group_lag:sum > 0
  and (sum by (topic, group) (increase(sluice_events_acked_total[15m])) or 0 * topic_group:sluice_group_lag:sum) == 0
  unless on (topic, group) sluice_group_paused == 1`,
		summary: `Group {{ $labels.group }} of {{ $labels.topic }} acks nothing`,
		description: "{{ $value | humanize }} events wait, and none has been acked for half an hour: no members, paused members, or " +
			"none that ever acks.",
	},
	{
		name: "SluiceGroupOldestUnacked", severity: Warning, kind: "group_stuck", wait: "5m",
		expr: `max by (topic, group) (sluice_group_oldest_unacked_seconds) > 3600
  unless on (topic, group) sluice_group_paused == 1`,
		summary:     `Group {{ $labels.group }} of {{ $labels.topic }} leaves an event unacked`,
		description: "Its oldest unacked event was accepted {{ $value | humanizeDuration }} ago.",
	},
	{
		name: "SluiceGroupWithoutMembers", severity: Warning, kind: "group_stuck", wait: "15m",
		expr: `sum by (topic, group) (sluice_group_members) == 0 and on (topic, group) topic_group:sluice_group_lag:sum > 0
  unless on (topic, group) sluice_group_paused == 1`,
		summary:     `Group {{ $labels.group }} of {{ $labels.topic }} has no members`,
		description: "Events wait for it, and for a quarter of an hour no member has been connected to any sidecar.",
	},
	{
		name: "SluiceDeadLetters", severity: Warning, kind: "dead_letters",
		expr:        `sum by (topic, group) (increase(sluice_events_dead_lettered_total[15m])) > 0`,
		summary:     `Group {{ $labels.group }} gives up events of {{ $labels.topic }}`,
		description: "{{ $value | humanize }} events went to {{ $labels.topic }}.dlq in a quarter of an hour.",
	},
	{
		name: "SluiceDeadLettersOld", severity: Warning, kind: "dead_letters",
		expr: `max by (topic) (sluice_dead_letter_oldest_age_seconds) > 25 * 86400
  and max by (topic) (sluice_dead_letters) > 0`,
		summary: `Dead letters of {{ $labels.topic }} are about to expire`,
		description: "The oldest died {{ $value | humanizeDuration }} ago; after 30 days they are removed, unless a policy says " +
			"otherwise.",
	},
	{
		name: "SluiceEventsPassedOver", severity: Critical,
		expr:        `sum by (topic, group) (increase(sluice_events_passed_over_total[15m])) > 0`,
		summary:     `Group {{ $labels.group }} lost events of {{ $labels.topic }} to retention`,
		description: "{{ $value | humanize }} events were removed in a quarter of an hour before the group came to them.",
	},
	{
		name: "SluiceDeliverySlow", severity: Warning, wait: "10m",
		expr:        `topic_group:sluice_delivery_latency_seconds:p99_5m > 5`,
		summary:     `Group {{ $labels.group }} of {{ $labels.topic }} is slow`,
		description: "One event in a hundred takes longer than {{ $value | humanizeDuration }} from acceptance to ack.",
	},
	{
		name: "SluiceOutboxFailing", severity: Warning, kind: "outbox_failing",
		// The counter of a code appears with its first document, which no increase shows.
		expr: `sum by (outbox, code) (increase(sluice_outbox_failed_total[15m])) > 0
  or sum by (outbox, code) (sluice_outbox_failed_total unless sluice_outbox_failed_total offset 15m) > 0`,
		summary:     `Documents of the outbox {{ $labels.outbox }} are given up: {{ $labels.code }}`,
		description: "{{ $value | humanize }} in a quarter of an hour; each has status `error` and says why.",
	},
	{
		name: "SluiceCaptureStopped", severity: Critical, kind: "capture_stopped",
		expr:    `max by (capture, topic) (sluice_capture_stopped) > 0`,
		summary: `The changes of {{ $labels.capture }} are not captured any more`,
		description: "The place in the oplog is lost, or the collection was dropped or renamed. It stops until an operator has it " +
			"re-read.",
	},
	{
		name: "SluiceCaptureLagging", severity: Warning, wait: "5m",
		expr:        `max by (capture, topic) (sluice_capture_lag_seconds) > 300`,
		summary:     `The changes of {{ $labels.capture }} come late to {{ $labels.topic }}`,
		description: "It is {{ $value | humanizeDuration }} behind. Once the oplog has passed it, changes are lost.",
	},
	{
		name: "SluiceCaptureFailing", severity: Warning,
		// The counter of a code appears with its first document, which no increase shows.
		expr: `sum by (capture, topic, code) (increase(sluice_capture_failed_total[15m])) > 0
  or sum by (capture, topic, code) (sluice_capture_failed_total unless sluice_capture_failed_total offset 15m) > 0`,
		summary:     `Changes of {{ $labels.capture }} are left out: {{ $labels.code }}`,
		description: "{{ $value | humanize }} in a quarter of an hour are not in {{ $labels.topic }}.",
	},
}

var controlPlaneAlerts = []Alert{
	{
		name: "SluiceControlPlaneDown", severity: Warning, wait: "5m",
		expr:        `absent(up{job="sluice-controlplane"} == 1)`,
		summary:     `No control plane answers`,
		description: "Sidecars go on with the policies that they have, and divide fleet-wide limits evenly; nothing can be changed.",
	},
	{
		name: "SluiceSidecarsUnconnected", severity: Warning, wait: "10m",
		expr:    `count(up{job="sluice-sidecar"} == 1) - max(sluice_controlplane_sidecars) > 0`,
		summary: `{{ $value }} sidecars run without the control plane`,
		description: "More sidecars answer scrapes than are connected to a control plane: the others use the last policies that they " +
			"received.",
	},
	{
		name: "SluicePolicyUnconfirmed", severity: Warning, wait: "10m",
		expr:        `count by (instance) (sluice_policy_version_info{source="control-plane (cached)"}) > 0`,
		summary:     `Sidecar {{ $labels.instance }} uses policies stored by an earlier run`,
		description: "It has started without reaching the control plane, and {{ $value }} of its policies are not confirmed.",
	},
	{
		name: "SluiceSidecarMissing", severity: Warning, kind: "sidecar_missing", wait: "15m",
		expr:    `max(sluice_controlplane_sidecars_missing) > 0`,
		summary: `{{ $value }} sidecars are gone, and replays of the fleet name them`,
		description: "Each may have events that no other sidecar has: in its spool, or its embedded log. `sluice fleet` has their " +
			"names.",
	},
	{
		name: "SluicePolicyRejected", severity: Warning, kind: "policy_rejected", wait: "1m",
		expr:        `max(sluice_controlplane_sidecars_rejecting) > 0`,
		summary:     `{{ $value }} sidecars refuse a policy`,
		description: "They keep the last valid one. `sluice fleet` and the console have the reasons.",
	},
	{
		name: "SluiceSidecarsRefused", severity: Warning, wait: "2m",
		expr:    `sum by (reason) (increase(sluice_controlplane_sessions_refused_total[5m])) > 0`,
		summary: `The control plane refuses sidecars: {{ $labels.reason }}`,
		description: "not_covered: a credential is not for the node id; in_use: two processes have one. They go on without it. The log " +
			"has their names.",
	},
	{
		name: "SluiceMemoryFull", severity: Warning, kind: "memory_full", wait: "5m",
		expr:        `max(sluice_controlplane_incidents{kind="memory_full"}) > 0`,
		summary:     `{{ $value }} sidecars have little memory left for clients`,
		description: "Their clients use more than nine tenths of --max-buffered-bytes; further requests are refused with overloaded.",
	},
	{
		name: "SluiceClockSkew", severity: Warning, kind: "clock_skew", wait: "5m",
		expr:        `max(sluice_controlplane_incidents{kind="clock_skew"}) > 0`,
		summary:     `The clocks of {{ $value }} sidecars are wrong`,
		description: "They differ from the control plane's by more than 2 s. The console's overview has the names.",
	},
	{
		name: "SluiceVersionSkew", severity: Warning, kind: "version_skew", wait: "24h",
		expr:        `max(sluice_controlplane_incidents{kind="version_skew"}) > 0`,
		summary:     `Sidecars of several versions have been connected for a day`,
		description: "A rollout is not complete, or was not taken back everywhere.",
	},
}
