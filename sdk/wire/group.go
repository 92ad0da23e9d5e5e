package wire

// GroupInfo is a group's place in a topic, with its members.
type GroupInfo struct {
	Topic      string           `json:"topic"`
	Group      string           `json:"group"`
	Paused     bool             `json:"paused,omitempty"` // by the topic's policy
	Lag        int64            `json:"lag"`              // events that are not settled
	Inflight   int              `json:"inflight"`         // of those, sent and not settled
	Partitions []GroupPartition `json:"partitions"`
	// Members are those of all sidecars of the store. More counts those that there was no room to
	// tell of, and Missing names the sidecars that could not say which members they have.
	Members []GroupMember `json:"members"`
	More    int           `json:"more,omitempty"`
	Missing []string      `json:"missing,omitempty"`
}

// GroupPartition is a group's place in one partition.
type GroupPartition struct {
	Partition int    `json:"partition"`
	Owner     string `json:"owner"`  // the sidecar that delivers from it; "" if none does
	Cursor    uint64 `json:"cursor"` // the lowest seq that is not settled
	Head      uint64 `json:"head"`   // the highest seq there is
	Lag       int64  `json:"lag"`
	Inflight  int    `json:"inflight"`
}

// GroupMember is one subscription of a group.
type GroupMember struct {
	ID      string `json:"id"`
	NodeID  string `json:"node_id"` // the sidecar that it is connected to
	Address string `json:"address"` // its client's; of pulls, the last one's
	Since   int64  `json:"since"`   // when it joined, in milliseconds since the epoch
	// Inflight is how many events it has and has not settled. OldestUnackedMS is how long it has had
	// the oldest of them, 0 without any.
	Inflight        int     `json:"inflight"`
	MaxInflight     int     `json:"max_inflight"`
	OldestUnackedMS int64   `json:"oldest_unacked_ms"`
	Paused          bool    `json:"paused"`
	BlockedBy       *string `json:"blocked_by"` // why it is sent nothing right now, or null
}

// SeekPlan is the effect that moving a group would have.
type SeekPlan struct {
	// Replays is how many settled seqs would become unsettled, and Skips how many unsettled seqs
	// would become settled. If events were removed, there are fewer events than seqs.
	Replays    int64           `json:"replays"`
	Skips      int64           `json:"skips"`
	Partitions []PartitionMove `json:"partitions"`
}

// PartitionMove is the way of a group's cursor in one partition.
type PartitionMove struct {
	Partition int    `json:"partition"`
	From      uint64 `json:"from"`
	To        uint64 `json:"to"`
}

// The states of an EventFate.
const (
	// FateAcked: a member acked it, and the group keeps a mark of that.
	FateAcked = "acked"
	// FateSettled: the group has settled it. The log does not say whether a member acked it, or the
	// group passed it over because the group began behind it or no member's filter let it pass.
	FateSettled  = "settled"
	FateInflight = "in_flight"
	FateWaiting  = "waiting" // see WaitsFor
	FateDead     = "dead"    // see DeadLetter
)

// EventFate is the state of an event in one group.
type EventFate struct {
	Group    string `json:"group"`
	State    string `json:"state"`
	Attempts int    `json:"attempts"` // deliveries so far, as far as they are remembered
	Owner    string `json:"owner"`    // the sidecar that delivers its partition; "" if none does
	Cursor   uint64 `json:"cursor"`   // the lowest seq of its partition that is not settled
	// WaitsFor is turn, member, key_order, same_id, backoff, dead_letter or owner: it is with
	// another sidecar, which alone knows more.
	WaitsFor string `json:"waits_for,omitempty"`
	// Member has it in flight, and DueMS is how long until that is over, or until it is delivered
	// again, in milliseconds.
	Member     string           `json:"member,omitempty"`
	DueMS      *int64           `json:"due_ms,omitempty"`
	DeadLetter *EventDeadLetter `json:"dead_letter,omitempty"`
}

// EventDeadLetter is the dead letter of an event that a group could not process.
type EventDeadLetter struct {
	Topic     string `json:"topic"`
	ID        string `json:"id"`
	TS        int64  `json:"ts"`
	Partition int    `json:"partition"`
	Seq       uint64 `json:"seq"` // 0: it is spooled
	Reason    string `json:"reason"`
	Attempts  int    `json:"attempts"`
}
