// Package policy says how each topic is to be treated: its rates, windows, retention and the rest
// of the contract's section 7. It reads policies, refuses bad ones with every reason at once, and
// resolves them into immutable snapshots that are swapped whole. It knows nothing of how a limit is
// enforced, how an event is stored or which client asks.
//
// # Resolution
//
// A policy's name is a topic, or a prefix followed by '*'. A topic takes each field from the policy
// of exactly its name if that sets the field, else from the matching prefix policy with the longest
// prefix that does, down to '*', else from [Defaults].
//
// [Policy.Ineffective] names the fields of a policy that have no effect in a sidecar's file.
package policy

import (
	"strings"
	"time"
)

// Scope is the scope of a topic's publish rate.
type Scope string

// The scopes.
const (
	ScopeSidecar Scope = "sidecar" // each sidecar by itself
	ScopeFleet   Scope = "fleet"   // all sidecars together
)

// OnLimit is what happens to a publish without a token.
type OnLimit string

// The ways to handle it.
const (
	LimitReject OnLimit = "reject" // refused at once
	LimitWait   OnLimit = "wait"   // waits up to Publish.MaxWait for its tokens, then is refused
)

// OnStoreUnavailable is what happens to a publish while the store is away.
type OnStoreUnavailable string

// The ways to handle it.
const (
	StoreSpool  OnStoreUnavailable = "spool"
	StoreReject OnStoreUnavailable = "reject"
)

// DedupeBy is what tells the CloudEvents of a topic apart. All other events have their id.
type DedupeBy string

// What tells them apart.
const (
	DedupeByID       DedupeBy = "id"
	DedupeBySourceID DedupeBy = "source_id" // the source and the id together, as the specification has it
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

// Expired is what happens to events whose own ttl has passed.
type Expired string

// The ways to handle them.
const (
	ExpiredDrop       Expired = "drop"
	ExpiredDeadLetter Expired = "dead_letter"
)

// WriteConcernMajority is the write concern that waits for a majority of the replica set; the
// others are "w:1", "w:2" and so on.
const WriteConcernMajority = "majority"

// Effective has all fields of a topic. The values of a [Snapshot] are shared: read only. Values are
// comparable with ==.
type Effective struct {
	Publish    Publish
	Connection Rate
	Delivery   Delivery
	// Partitions is the number of partitions of a new topic; existing topics keep theirs.
	Partitions int
	Dedupe     Dedupe
	Retention  Retention
	Durability Durability
	Schema     Schema
	Tracing    Tracing
	Groups     Groups
	// AutoCreate makes publishing and subscribing create a missing topic.
	AutoCreate bool
	// Paused refuses publishes.
	Paused bool
}

// Rate is a token bucket's size and fill rate.
type Rate struct {
	Rate  float64 // tokens per second; 0: no limit
	Burst int     // at least 1 where Rate is above 0
}

// Publish limits publishes to a topic.
type Publish struct {
	Rate           float64 // events per second; 0: no limit
	Burst          int     // events; at least 1 where Rate is above 0
	BytesPerSecond int64   // 0: no limit
	Scope          Scope
	OnLimit        OnLimit
	MaxWait        time.Duration // with LimitWait
	Per            Grouping      // Rate and Burst are for each tenant by itself; "": for all together
}

// Delivery has the defaults of a subscription, and its maximum.
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

// Fairness delivers a group's backlog in turns of the tenants.
type Fairness struct {
	By      Grouping // "": in the order of the log
	Weights Weights
}

// Dedupe is what makes an event the same as another one of its topic.
type Dedupe struct {
	// Window is how long after its acceptance an id is remembered even if its event is not kept.
	Window time.Duration
	By     DedupeBy
}

// Retention is which events a topic keeps.
type Retention struct {
	TTL     time.Duration // 0: for ever
	Compact bool          // keep the latest event of each key only
	// MaxBytes is about how many bytes the topic's events may have; the oldest are removed. 0: no
	// limit.
	MaxBytes int64
	// Expired is what happens for a group to an event whose own ttl has passed.
	Expired Expired
	// DeadLetters is how long the topic's dead letters are kept; 0: for ever.
	DeadLetters time.Duration
}

// Durability is when a publish counts as stored. It applies to a remote store: the embedded log has
// no replicas to wait for, and is never away.
type Durability struct {
	WriteConcern       string // WriteConcernMajority, or "w:" and a number
	OnStoreUnavailable OnStoreUnavailable
	SpoolMaxBytes      int64 // of the topic's events in the spool; 0: no limit
}

// MayVanish reports whether acknowledged events may be lost with a primary of the store.
func (d Durability) MayVanish() bool { return d.WriteConcern != WriteConcernMajority }

// Schema is the schema of payloads.
type Schema struct {
	JSONSchema    string // compact JSON text of the schema; "": any payload
	Compatibility Compatibility
	// Version is the schema's version, and not a field of the document: a control plane counts the
	// schemas of each policy from 1. It is 1 in a file's policies, and 0 without a schema.
	Version int64
}

// Tracing is how much is traced.
type Tracing struct {
	SampleRatio float64 // from 0 to 1
}

// Policy is one policy as written: a name, and values of the fields that it sets. It comes from
// [ParseYAML], [ParseJSON], [ParsePolicy] or [ParseList]; == also compares the position in the
// document, [Policy.Equal] does not.
type Policy struct {
	Name string

	values Effective // those of the fields in set count
	set    fieldSet

	line int  // of its name in the file; 0: not from a file with lines
	bad  bool // some of it was refused, so relations between its fields mean nothing
}

// prefix returns the literal prefix of a glob, or false for an exact name.
func (p *Policy) prefix() (string, bool) { return strings.CutSuffix(p.Name, "*") }

// applyTo overwrites in e the fields that the policy sets.
func (p *Policy) applyTo(e *Effective) {
	for i := range fields {
		if p.set.has(i) {
			fields[i].copy(e, &p.values)
		}
	}
}

// sets reports whether the policy sets the field of that path.
func (p *Policy) sets(path string) bool {
	i := fieldAt(path)
	return i >= 0 && p.set.has(i)
}

// JSONSchema is the schema that the policy sets; "": none.
func (p *Policy) JSONSchema() string { return p.values.Schema.JSONSchema }

// Compatibility is the one that the policy sets; "": it sets none.
func (p *Policy) Compatibility() Compatibility { return p.values.Schema.Compatibility }

// SetSchemaVersion sets the version of the policy's schema.
func (p *Policy) SetSchemaVersion(n int64) { p.values.Schema.Version = n }

// SchemaVersion is the version of the schema that the policy sets; 0: it sets none.
func (p *Policy) SchemaVersion() int64 { return p.values.Schema.Version }

// Ineffective names the fields that have no effect in a sidecar's file: publish.scope fleet, since
// a control plane divides the rate of a fleet; and connection outside of '*', the only policy that
// has it.
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
