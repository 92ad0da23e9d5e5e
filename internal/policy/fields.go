package policy

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/sluice-bus/sluice/internal/setting"
)

// field is one field of the policy document: its path, how it is parsed, and where its value is
// stored. The table of fields is the whole schema: parsing, inheritance, hashing and [JSONSchema]
// all use it.
type field struct {
	path string
	// schema is the JSON Schema of its values.
	schema map[string]any
	// read sets the field in e from the node; the error says what is allowed.
	read func(e *Effective, n *yaml.Node) error
	// copy sets the field in dst to its value in src, or adds to it what src sets.
	copy func(dst, src *Effective)
	// get is the field's value, for hashing.
	get func(e *Effective) any
}

// kind is a kind of values: how they are read, and their JSON Schema.
type kind[T any] struct {
	read   func(*yaml.Node) (T, error)
	schema map[string]any
}

// at builds the field at path from where its value lives and its kind.
func at[T any](path, doc string, in func(*Effective) *T, of kind[T]) field {
	return field{
		path:   path,
		schema: described(of.schema, doc),
		read: func(e *Effective, n *yaml.Node) error {
			v, err := of.read(n)
			if err == nil {
				*in(e) = v
			}
			return err
		},
		copy: func(dst, src *Effective) { *in(dst) = *in(src) },
		get:  func(e *Effective) any { return *in(e) },
	}
}

// adding makes members of the field inherited one by one, by name.
func (f field) adding(copy func(dst, src *Effective)) field {
	f.copy = copy
	return f
}

const (
	maxRate        = 1_000_000_000 // events per second
	maxBurst       = 1_000_000_000
	maxInflight    = 100_000
	maxAttempts    = 1_000_000
	maxPartitions  = 1024
	maxReplicas    = 50 // members of a MongoDB replica set
	forever        = time.Duration(math.MaxInt64)
	maxExactNumber = 1 << 53
	minWeight      = 0.001
	maxWeight      = 1000
)

var fields = []field{
	at("publish.rate", "events a second; 0: no limit",
		func(e *Effective) *float64 { return &e.Publish.Rate }, rate),
	at("publish.burst", "events at once; at least 1 where there is a rate",
		func(e *Effective) *int { return &e.Publish.Burst }, whole[int](0, maxBurst)),
	at("publish.bytes_per_second", "bytes of payloads a second; 0: no limit",
		func(e *Effective) *int64 { return &e.Publish.BytesPerSecond }, whole[int64](0, math.MaxInt64)),
	at("publish.scope", "the rate is for each sidecar by itself, or for the fleet together",
		func(e *Effective) *Scope { return &e.Publish.Scope }, oneOf(ScopeSidecar, ScopeFleet)),
	at("publish.on_limit", "reject refuses at once; wait waits up to max_wait first",
		func(e *Effective) *OnLimit { return &e.Publish.OnLimit }, oneOf(LimitReject, LimitWait)),
	at("publish.max_wait", "how long a publish waits for its tokens; with on_limit wait",
		func(e *Effective) *time.Duration { return &e.Publish.MaxWait }, duration(0, forever)),

	at("publish.per", "header:NAME: rate and burst are for each value of that header by itself",
		func(e *Effective) *Grouping { return &e.Publish.Per }, perHeader),

	at("connection.rate", "requests a second of each connection to a sidecar; of the policy * alone; 0: no limit",
		func(e *Effective) *float64 { return &e.Connection.Rate }, rate),
	at("connection.burst", "requests at once of each connection to a sidecar; of the policy * alone",
		func(e *Effective) *int { return &e.Connection.Burst }, whole[int](0, maxBurst)),

	at("delivery.rate", "events a second to each connection; 0: no limit",
		func(e *Effective) *float64 { return &e.Delivery.Rate }, rate),
	at("delivery.max_inflight", "unacked events of a subscription: the default, and the most that one may have",
		func(e *Effective) *int { return &e.Delivery.MaxInflight }, whole[int](1, maxInflight)),
	at("delivery.ack_timeout", "when an unacked event is delivered again: the default, and the most that a subscription may have",
		func(e *Effective) *time.Duration { return &e.Delivery.AckTimeout }, duration(time.Millisecond, 24*time.Hour)),
	at("delivery.max_attempts", "deliveries after which an event is a dead letter: the default, and the most that a subscription may have",
		func(e *Effective) *int { return &e.Delivery.MaxAttempts }, whole[int](1, maxAttempts)),
	at("delivery.backoff.min", "pause before the second delivery",
		func(e *Effective) *time.Duration { return &e.Delivery.Backoff.Min }, duration(0, forever)),
	at("delivery.backoff.max", "longest pause before a delivery",
		func(e *Effective) *time.Duration { return &e.Delivery.Backoff.Max }, duration(0, forever)),

	at("delivery.fairness.by", "header:NAME, key_prefix or key_prefix:SEPARATOR: groups get their backlog in turns of the tenants",
		func(e *Effective) *Grouping { return &e.Delivery.Fairness.By }, fairnessBy),
	at("delivery.fairness.weights", "the part of the turns that each tenant has; 1 for others",
		func(e *Effective) *Weights { return &e.Delivery.Fairness.Weights }, weights).
		adding(func(dst, src *Effective) {
			dst.Delivery.Fairness.Weights = src.Delivery.Fairness.Weights.over(dst.Delivery.Fairness.Weights)
		}),

	at("partitions", "of a new topic; existing topics keep theirs",
		func(e *Effective) *int { return &e.Partitions }, whole[int](1, maxPartitions)),
	at("dedupe.window", "how long an id is remembered after its event is gone",
		func(e *Effective) *time.Duration { return &e.Dedupe.Window }, duration(0, forever)),
	at("dedupe.by", "what tells CloudEvents apart: their id, or source_id: their source and id together",
		func(e *Effective) *DedupeBy { return &e.Dedupe.By }, oneOf(DedupeByID, DedupeBySourceID)),
	at("retention.ttl", "how long events are kept; 0: for ever",
		func(e *Effective) *time.Duration { return &e.Retention.TTL }, duration(0, forever)),
	at("retention.compact", "keep only the latest event of each key",
		func(e *Effective) *bool { return &e.Retention.Compact }, boolean),
	at("retention.max_bytes", "about how many bytes of events a topic holds; the oldest go; 0: no limit",
		func(e *Effective) *int64 { return &e.Retention.MaxBytes }, whole[int64](0, math.MaxInt64)),
	at("retention.expired", "what happens for a group to an event whose own ttl_ms has passed",
		func(e *Effective) *Expired { return &e.Retention.Expired }, oneOf(ExpiredDrop, ExpiredDeadLetter)),
	at("retention.dead_letters", "how long the topic's dead letters are kept, whatever its ttl; 0: for ever",
		func(e *Effective) *time.Duration { return &e.Retention.DeadLetters }, duration(0, forever)),

	at("durability.write_concern", "of MongoDB: majority, or w:1, w:2 and so on",
		func(e *Effective) *string { return &e.Durability.WriteConcern }, writeConcern),
	at("durability.on_store_unavailable", "what happens to publishes while the store is away",
		func(e *Effective) *OnStoreUnavailable { return &e.Durability.OnStoreUnavailable },
		oneOf(StoreSpool, StoreReject)),
	at("durability.spool_max_bytes", "bytes of the topic's spooled events; 0: no limit",
		func(e *Effective) *int64 { return &e.Durability.SpoolMaxBytes }, whole[int64](0, math.MaxInt64)),

	schemaField,
	at("schema.compatibility", "which changes of the schema are allowed",
		func(e *Effective) *Compatibility { return &e.Schema.Compatibility },
		oneOf(CompatibilityNone, CompatibilityBackward, CompatibilityForward, CompatibilityFull,
			CompatibilityBackwardTransitive, CompatibilityForwardTransitive, CompatibilityFullTransitive)),

	at("tracing.sample_ratio", "which part of the traces is recorded",
		func(e *Effective) *float64 { return &e.Tracing.SampleRatio }, number(0, 1)),
	at("groups", "limits of consumer groups by name",
		func(e *Effective) *Groups { return &e.Groups }, groups).
		adding(func(dst, src *Effective) { dst.Groups = src.Groups.over(dst.Groups) }),
	at("auto_create", "publishing and subscribing create the topic; false: they get not_found if it does not exist",
		func(e *Effective) *bool { return &e.AutoCreate }, boolean),
	at("paused", "refuse publishes",
		func(e *Effective) *bool { return &e.Paused }, boolean),
}

// fieldAt is the index of a field; -1: there is none.
func fieldAt(path string) int {
	return slices.IndexFunc(fields, func(f field) bool { return f.path == path })
}

// shown quotes a node in an error, shortened, and never a whole subtree.
func shown(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "an object"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "an alias (write the value out)"
	}
	if n.ShortTag() == "!!null" {
		return "null"
	}
	text := n.Value
	if len(text) > 40 {
		text = strings.ToValidUTF8(text[:40], "") + "…"
	}
	if n.ShortTag() == "!!str" {
		return strconv.Quote(text)
	}
	return text
}

// numeric decodes a number, whole or not.
func numeric(n *yaml.Node) (float64, bool) {
	if n.Kind != yaml.ScalarNode || (n.ShortTag() != "!!int" && n.ShortTag() != "!!float") {
		return 0, false
	}
	if v, ok := decimal(n.Value); ok {
		return float64(v), true
	}
	var v float64
	err := n.Decode(&v)
	if err != nil { // a whole number that no integer holds
		v, err = strconv.ParseFloat(n.Value, 64)
	}
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, false
	}
	return v, true
}

// decimal reads a whole number as most are written. YAML has other forms: 0x10, 010, 1_000.
func decimal(text string) (int64, bool) {
	if len(text) > 1 && (text[0] < '1' || text[0] > '9') {
		return 0, false
	}
	v, err := strconv.ParseInt(text, 10, 64)
	return v, err == nil
}

func number(least, most float64) kind[float64] {
	return kind[float64]{func(n *yaml.Node) (float64, error) {
		v, ok := numeric(n)
		if !ok || v < least || v > most {
			return 0, fmt.Errorf("must be a number from %v to %v, not %s", least, most, shown(n))
		}
		return v + 0, nil // -0 becomes 0
	}, map[string]any{"type": "number", "minimum": least, "maximum": most}}
}

var rate = kind[float64]{func(n *yaml.Node) (float64, error) {
	v, ok := numeric(n)
	if !ok || v < 0 || v > maxRate {
		return 0, fmt.Errorf("must be a number from 0 (no limit) to %d, not %s", maxRate, shown(n))
	}
	return v + 0, nil
}, map[string]any{"type": "number", "minimum": 0, "maximum": maxRate}}

// whole reads an integer; 1e6 and 5.0 are integers too.
func whole[T int | int64](least, most T) kind[T] {
	allowed := fmt.Sprintf("from %d to %d", least, most)
	if int64(most) == math.MaxInt64 {
		allowed = fmt.Sprintf("of at least %d", least)
	}
	return kind[T]{func(n *yaml.Node) (T, error) {
		v, ok := integer(n)
		if !ok || v < int64(least) || v > int64(most) {
			return 0, fmt.Errorf("must be a whole number %s, not %s", allowed, shown(n))
		}
		return T(v), nil
	}, map[string]any{"type": "integer", "minimum": least, "maximum": most}}
}

func integer(n *yaml.Node) (v int64, ok bool) {
	isInt := n.Kind == yaml.ScalarNode && n.ShortTag() == "!!int"
	if v, ok := decimal(n.Value); ok && isInt {
		return v, true
	}
	f, ok := numeric(n)
	if !ok || f != math.Trunc(f) {
		return 0, false
	}
	if !isInt {
		return int64(f), math.Abs(f) <= maxExactNumber
	}
	return v, n.Decode(&v) == nil
}

var boolean = kind[bool]{func(n *yaml.Node) (bool, error) {
	var v bool
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!bool" || n.Decode(&v) != nil {
		return false, fmt.Errorf("must be true or false, not %s", shown(n))
	}
	return v, nil
}, map[string]any{"type": "boolean"}}

// duration parses the format of time.ParseDuration, which includes 0.
func duration(least, most time.Duration) kind[time.Duration] {
	allowed := fmt.Sprintf("of at least %v", least)
	if most != forever {
		allowed = fmt.Sprintf("from %v to %v", least, most)
	}
	return kind[time.Duration]{func(n *yaml.Node) (time.Duration, error) {
		d, err := time.ParseDuration(n.Value)
		if n.Kind != yaml.ScalarNode || err != nil || d < least || d > most {
			return 0, fmt.Errorf(`must be a duration such as "1.5s" %s, not %s`, allowed, shown(n))
		}
		return d, nil
	}, setting.DurationSchema()}
}

func oneOf[T ~string](allowed ...T) kind[T] {
	return kind[T]{func(n *yaml.Node) (T, error) {
		if n.Kind != yaml.ScalarNode || !slices.Contains(allowed, T(n.Value)) {
			return "", fmt.Errorf("must be one of %v, not %s", allowed, shown(n))
		}
		return T(n.Value), nil
	}, map[string]any{"enum": allowed}}
}

// writeConcern reads "majority", "w:2" or 2.
var writeConcern = kind[string]{func(n *yaml.Node) (string, error) {
	if n.Kind == yaml.ScalarNode {
		if n.Value == WriteConcernMajority {
			return n.Value, nil
		}
		text, named := strings.CutPrefix(n.Value, "w:")
		w, err := strconv.Atoi(text)
		if (named || n.ShortTag() == "!!int") && err == nil && w >= 1 && w <= maxReplicas {
			return fmt.Sprintf("w:%d", w), nil
		}
	}
	return "", fmt.Errorf("must be majority, or w:N with N from 1 to %d, not %s", maxReplicas, shown(n))
}, map[string]any{"type": []string{"string", "integer"}, "pattern": "^(majority|w:[0-9]{1,2})$", "minimum": 1, "maximum": maxReplicas}}
