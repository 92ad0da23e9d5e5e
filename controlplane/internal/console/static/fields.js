// The fields of a policy, in the order in which people read them. The list is
// JSON between the brackets: a Go test compares its paths and defaults with
// those of the program.
//
// form: the section of the form that has the field; fields without one are edited
// as JSON. members: the fields of each consumer group, groups.NAME.paused and so on.
export const fields = [
  {"path": "publish.rate", "kind": "number", "default": 1000, "max": 1000000000, "form": "Publish", "label": "Rate", "unit": "events/s", "help": "0 is no limit"},
  {"path": "publish.burst", "kind": "whole", "default": 1000, "min": 0, "max": 1000000000, "form": "Publish", "label": "Burst", "unit": "events", "help": "allowed at once"},
  {"path": "publish.scope", "kind": "choice", "default": "sidecar", "options": ["sidecar", "fleet"], "form": "Publish", "label": "Rate is for", "help": "each sidecar by itself, or all together"},
  {"path": "publish.on_limit", "kind": "choice", "default": "reject", "options": ["reject", "wait"], "form": "Publish", "label": "Over the limit", "help": "refuse at once, or wait for a token"},
  {"path": "publish.max_wait", "kind": "duration", "default": "0s", "form": "Publish", "label": "Wait at most", "unit": "such as 1.5s", "help": "then refuse; with wait only"},
  {"path": "publish.bytes_per_second", "kind": "whole", "default": 0, "min": 0, "form": "Publish", "label": "Bytes", "unit": "bytes/s", "help": "0 is no limit"},
  {"path": "publish.per", "kind": "text", "default": null, "form": "Publish", "label": "Rate is by", "unit": "header:NAME", "help": "each value of that header by itself"},
  {"path": "connection.rate", "kind": "number", "default": 200, "max": 1000000000},
  {"path": "connection.burst", "kind": "whole", "default": 200, "min": 0, "max": 1000000000},
  {"path": "delivery.rate", "kind": "number", "default": 0, "max": 1000000000, "form": "Delivery", "label": "Rate", "unit": "events/s", "help": "0 is no limit"},
  {"path": "delivery.max_inflight", "kind": "whole", "default": 100, "min": 1, "max": 100000, "form": "Delivery", "label": "In flight", "unit": "events", "help": "unacked at the same time"},
  {"path": "delivery.ack_timeout", "kind": "duration", "default": "30s", "form": "Delivery", "label": "Ack within", "unit": "1ms to 24h", "help": "then it is delivered again"},
  {"path": "delivery.max_attempts", "kind": "whole", "default": 25, "min": 1, "max": 1000000, "form": "Delivery", "label": "Attempts", "unit": "times", "help": "then it is a dead letter"},
  {"path": "delivery.backoff.min", "kind": "duration", "default": "100ms", "form": "Delivery", "label": "Backoff from", "help": "before the second attempt"},
  {"path": "delivery.backoff.max", "kind": "duration", "default": "5m", "form": "Delivery", "label": "Backoff to", "help": "before later ones"},
  {"path": "delivery.fairness.by", "kind": "text", "default": null},
  {"path": "delivery.fairness.weights", "kind": "json", "default": null},
  {"path": "partitions", "kind": "whole", "default": 8, "min": 1, "max": 1024},
  {"path": "dedupe.window", "kind": "duration", "default": "168h"},
  {"path": "dedupe.by", "kind": "choice", "default": "id", "options": ["id", "source_id"]},
  {"path": "retention.ttl", "kind": "duration", "default": "0s"},
  {"path": "retention.compact", "kind": "yesno", "default": false},
  {"path": "retention.max_bytes", "kind": "whole", "default": 0, "min": 0},
  {"path": "retention.expired", "kind": "choice", "default": "drop", "options": ["drop", "dead_letter"]},
  {"path": "retention.dead_letters", "kind": "duration", "default": "720h"},
  {"path": "durability.write_concern", "kind": "text", "default": "majority"},
  {"path": "durability.on_store_unavailable", "kind": "choice", "default": "spool", "options": ["spool", "reject"]},
  {"path": "durability.spool_max_bytes", "kind": "whole", "default": 1073741824, "min": 0},
  {"path": "schema.json_schema", "kind": "json", "default": null},
  {"path": "schema.compatibility", "kind": "choice", "default": "backward", "options": ["none", "backward", "forward", "full", "backward_transitive", "forward_transitive", "full_transitive"]},
  {"path": "tracing.sample_ratio", "kind": "number", "default": 1, "max": 1},
  {"path": "groups", "kind": "json", "default": null, "members": [
    {"path": "paused", "kind": "yesno", "default": false, "label": "Paused", "help": "the group gets no events"},
    {"path": "rate", "kind": "number", "default": 0, "max": 1000000000, "label": "Rate", "unit": "events/s", "help": "of all its members; 0 is no limit"},
    {"path": "max_inflight", "kind": "whole", "default": 0, "min": 0, "max": 100000, "label": "In flight", "unit": "events", "help": "of all its members; 0 is no limit"}
  ]},
  {"path": "auto_create", "kind": "yesno", "default": true},
  {"path": "paused", "kind": "yesno", "default": false, "form": "Publish", "label": "Paused", "help": "refuse every publish"}
];
