// Package policy says how each topic is to be treated: its rates, windows,
// retention and the rest of the contract's section 7. It reads policies,
// refuses bad ones with every reason at once, and resolves them into immutable
// snapshots that are swapped whole. It knows nothing of how a limit is
// enforced, how an event is stored or who asks.
//
// # Resolution
//
// A policy's name is a topic, or a prefix followed by '*'. A topic takes each
// field from the policy of exactly its name if that sets the field, else from
// the matching prefix policy with the longest prefix that does, down to '*',
// else from [Defaults].
//
// [Policy.Ineffective] names the fields of a policy that have no effect in a
// sidecar's file.
package policy

import (
	"slices"
	"strings"
	"time"
)

// Scope says whom a topic's publish rate is for.
type Scope string

// The scopes.
const (
	ScopeSidecar Scope = "sidecar" // each sidecar by itself
	ScopeFleet   Scope = "fleet"   // all sidecars together
)

// OnLimit says what becomes of a publish that finds no token.
type OnLimit string

// What can become of it.
const (
	LimitReject OnLimit = "reject" // refused at once
	LimitWait   OnLimit = "wait"   // waits up to Publish.MaxWait for its tokens, then is refused
)

// OnStoreUnavailable says what becomes of a publish while the store is away.
type OnStoreUnavailable string

// What can become of it.
const (
	StoreSpool  OnStoreUnavailable = "spool"
	StoreReject OnStoreUnavailable = "reject"
)

// Compatibility says which changes of a topic's schema are allowed.
type Compatibility string

// The kinds of compatibility.
const (
	CompatibilityNone     Compatibility = "none"
	CompatibilityBackward Compatibility = "backward"
	CompatibilityForward  Compatibility = "forward"
	CompatibilityFull     Compatibility = "full"

	CompatibilityBackwardTransitive Compatibility = "backward_transitive"
	CompatibilityForwardTransitive  Compatibility = "forward_transitive"
	CompatibilityFullTransitive     Compatibility = "full_transitive"
)

// Expired is what becomes of events whose own ttl has passed.
type Expired string

// What may become of them.
const (
	ExpiredDrop       Expired = "drop"
	ExpiredDeadLetter Expired = "dead_letter"
)

// WriteConcernMajority is the write concern that waits for a majority of the
// replica set; the others are "w:1", "w:2" and so on.
const WriteConcernMajority = "majority"

// Effective is everything that holds for one topic, all fields filled in. The
// ones that a [Snapshot] hands out are shared: read only. Values are
// comparable with ==.
type Effective struct {
	Publish    Publish
	Connection Rate
	Delivery   Delivery
	// Partitions is how many a topic gets when it is created; existing topics
	// keep theirs.
	Partitions int
	Dedupe     Dedupe
	Retention  Retention
	Durability Durability
	Schema     Schema
	Tracing    Tracing
	Groups     Groups
	// AutoCreate makes a topic when somebody publishes or subscribes to it.
	AutoCreate bool
	// Paused refuses publishes.
	Paused bool
}

// Rate is a token bucket's size and how fast it fills.
type Rate struct {
	Rate  float64 // tokens per second; 0: no limit
	Burst int     // at least 1 where Rate is above 0
}

// Publish limits what comes into a topic.
type Publish struct {
	Rate           float64 // events per second; 0: no limit
	Burst          int     // events; at least 1 where Rate is above 0
	BytesPerSecond int64   // 0: no limit
	Scope          Scope
	OnLimit        OnLimit
	MaxWait        time.Duration // with LimitWait
	Per            Grouping      // Rate and Burst are for each tenant by itself; "": for all together
}

// Delivery is what a subscription gets that does not say, and the most for one
// that does.
type Delivery struct {
	Rate        float64 // events per second, with one second's worth as burst; 0: no limit
	MaxInflight int
	AckTimeout  time.Duration
	MaxAttempts int
	Backoff     Backoff
	Fairness    Fairness
}

// Backoff bounds the pause before a redelivery; Min ≤ Max.
type Backoff struct{ Min, Max time.Duration }

// Fairness has the events of a group's backlog delivered in turns of their
// tenants.
type Fairness struct {
	By      Grouping // "": in the order of the log
	Weights Weights
}

// Dedupe says for how long after its acceptance an id is remembered even where
// its event is not kept.
type Dedupe struct{ Window time.Duration }

// Retention says what a topic keeps.
type Retention struct {
	TTL     time.Duration // 0: for ever
	Compact bool          // keep the latest event of each key only
	// MaxBytes is about how much the topic's events may hold; the oldest go. 0: no limit.
	MaxBytes int64
	// Expired is what becomes of an event for a group when the event's own ttl
	// has passed.
	Expired Expired
}

// Durability says when a publish counts as kept. It is about a store that is
// elsewhere: the embedded log has no replicas to wait for, and is never away.
type Durability struct {
	WriteConcern       string // WriteConcernMajority, or "w:" and a number
	OnStoreUnavailable OnStoreUnavailable
	SpoolMaxBytes      int64 // of the topic's events in the spool; 0: no limit
}

// MayVanish reports whether events that were answered may be gone again with a
// primary of the store.
func (d Durability) MayVanish() bool { return d.WriteConcern != WriteConcernMajority }

// Schema is what payloads have to look like.
type Schema struct {
	JSONSchema    string // compact JSON text of the schema; "": any payload
	Compatibility Compatibility
	// Version is the schema's, and no field of the document: a control plane counts
	// the schemas of each policy from 1. It is 1 in a file's policies, and 0 without a
	// schema.
	Version int64
}

// Tracing says how much is traced.
type Tracing struct {
	SampleRatio float64 // from 0 to 1
}

// Defaults are the values of a topic that no policy says anything about.
func Defaults() Effective {
	return Effective{
		Publish:    Publish{Rate: 1000, Burst: 1000, Scope: ScopeSidecar, OnLimit: LimitReject},
		Connection: Rate{Rate: 200, Burst: 200},
		Delivery: Delivery{
			MaxInflight: 100,
			AckTimeout:  30 * time.Second,
			MaxAttempts: 25,
			Backoff:     Backoff{Min: 100 * time.Millisecond, Max: 5 * time.Minute},
		},
		Partitions: 8,
		Dedupe:     Dedupe{Window: 7 * 24 * time.Hour},
		Retention:  Retention{Expired: ExpiredDrop},
		Durability: Durability{WriteConcern: WriteConcernMajority, OnStoreUnavailable: StoreSpool, SpoolMaxBytes: 1 << 30},
		Schema:     Schema{Compatibility: CompatibilityBackward},
		Tracing:    Tracing{SampleRatio: 1},
		AutoCreate: true,
	}
}

// Policy is one policy as somebody wrote it: a name, and values for the fields
// that it sets. It comes from [ParseYAML], [ParseJSON], [ParsePolicy] or
// [ParseList]; == compares where it was written, too, and [Policy.Equal] does not.
type Policy struct {
	Name string

	values Effective // those of the fields in set count
	set    fieldSet

	line int  // of its name in the file; 0: not from a file with lines
	bad  bool // some of it was refused, so relations between its fields mean nothing
}

// prefix returns the literal prefix of a glob, or false for an exact name.
func (p *Policy) prefix() (string, bool) { return strings.CutSuffix(p.Name, "*") }

// applyTo overwrites in e what the policy sets.
func (p *Policy) applyTo(e *Effective) {
	for i := range fields {
		if p.set.has(i) {
			fields[i].copy(e, &p.values)
		}
	}
}

// sets reports whether the policy sets the field of that path.
func (p *Policy) sets(path string) bool {
	i := slices.IndexFunc(fields, func(f field) bool { return f.path == path })
	return i >= 0 && p.set.has(i)
}

// JSONSchema is the schema that the policy sets; "": none.
func (p *Policy) JSONSchema() string { return p.values.Schema.JSONSchema }

// Compatibility is the one that the policy sets; "": it sets none.
func (p *Policy) Compatibility() Compatibility { return p.values.Schema.Compatibility }

// SetSchemaVersion says which version of the policy's schemas its schema is.
func (p *Policy) SetSchemaVersion(n int64) { p.values.Schema.Version = n }

// SchemaVersion is the version of the schema that the policy sets; 0: it sets none.
func (p *Policy) SchemaVersion() int64 { return p.values.Schema.Version }

// Ineffective names the fields that the policy sets without effect in a
// sidecar's file: publish.scope fleet, since a control plane divides the rate
// of a fleet; and connection outside of '*', the only policy that it is read
// from.
func (p *Policy) Ineffective() []string {
	var out []string
	for i, f := range fields {
		if !p.set.has(i) {
			continue
		}
		switch section, _, _ := strings.Cut(f.path, "."); {
		case section == "connection" && p.Name != "*",
			f.path == "publish.scope" && p.values.Publish.Scope == ScopeFleet:
			out = append(out, f.path)
		}
	}
	return out
}

// fieldSet is a set of indexes into fields.
type fieldSet uint64

func (s fieldSet) has(i int) bool      { return s>>i&1 == 1 }
func (s fieldSet) with(i int) fieldSet { return s | 1<<i }
