package wire

import "slices"

// The ops that a client may send.
const (
	OpAuth        = "AUTH"
	OpPublish     = "PUBLISH"
	OpSubscribe   = "SUBSCRIBE"
	OpUnsubscribe = "UNSUBSCRIBE"
	OpAck         = "ACK"
	OpNack        = "NACK"
	OpModAck      = "MODACK"
	OpPause       = "PAUSE"
	OpResume      = "RESUME"
	OpPing        = "PING"
)

// The ops that a sidecar sends.
const (
	OpOK       = "OK"
	OpErr      = "ERR"
	OpEvent    = "EVENT"
	OpEvents   = "EVENTS"
	OpAssigned = "ASSIGNED"
	OpRevoked  = "REVOKED"
)

// PublishItem is one event as a publisher sent it: shape-checked, within the limits, its payload
// compacted. Err is set instead when this event alone is not acceptable, so that the rest of its
// batch can go on.
type PublishItem struct {
	Event Event // ID may be "": the sidecar makes one
	HasTS bool  // whether Event.TS was given
	Later Later // when it is to go into the log; zero: at once
	// CloudEvent says that it came as one, with an id: a topic whose policy has dedupe.by source_id gives it
	// the id CloudEventID.
	CloudEvent bool
	Err        *Error
}

// NewPublishItem is the event with the options applied; a TS of 0 is left to the sidecar.
func NewPublishItem(e *Event, opts []func(*PublishItem)) PublishItem {
	if len(opts) == 0 {
		return PublishItem{Event: *e, HasTS: e.TS != 0} // on the stack
	}
	p := &PublishItem{Event: *e}
	for _, set := range opts {
		if set != nil {
			set(p)
		}
	}
	p.HasTS = p.Event.TS != 0
	return *p
}

// Where a subscription starts while its group has no cursor.
const (
	FromLatest   = "latest"
	FromEarliest = "earliest"
	FromTS       = "ts"
	FromAfterID  = "afterId"
	// FromPositions starts right behind a seq of each partition that is named. A subscription
	// starts the other partitions at their first event; a move of a group leaves them where they
	// are.
	FromPositions = "positions"
)

// SubscribeOptions are the opts of SUBSCRIBE as sent; nil and "" mean not given, so that a topic's
// policy can supply the default.
type SubscribeOptions struct {
	From         string
	TS           *int64
	AfterID      string
	Positions    map[int]uint64 // by partition, with FromPositions
	MaxInflight  *int
	AckTimeoutMS *int64
	MaxAttempts  *int
	MaxBatch     *int
	Ordered      *bool
	ExactlyOnce  bool
	DedupeTTLMS  *int64
	AutoAck      bool
	Format       string // of the events; "": FormatEvent
	Rebalance    bool
	Filter       *Filter
}

// The formats in which events are handed out.
const (
	FormatEvent       = "event"       // the event object
	FormatCloudEvents = "cloudevents" // CloudEvents 1.0 in JSON
)

// Filter passes an event that matches every part that is given.
type Filter struct {
	Key     *string
	Tag     *string
	Headers Headers
}

// Matches reports whether the filter lets the event pass; a nil filter lets every event pass.
func (f *Filter) Matches(e *Event) bool {
	if f == nil {
		return true
	}
	if f.Key != nil && *f.Key != e.Key {
		return false
	}
	if f.Tag != nil && !slices.Contains(e.Tags, *f.Tag) {
		return false
	}
	for _, h := range f.Headers {
		if v, ok := e.Headers.Get(h.Name); !ok || v != h.Value {
			return false
		}
	}
	return true
}

// Nack has the fields of a NACK other than the ids.
type Nack struct {
	Reason  string // kept with a dead letter; may be empty
	DelayMS *int64 // until the next delivery; nil: the policy's backoff
	// DeadLetter sends the event to the dead letters at once.
	DeadLetter bool
	// Hold delivers the event again after DelayMS, which it needs, without counting an attempt.
	// Later events of its key wait meanwhile.
	Hold bool
}
