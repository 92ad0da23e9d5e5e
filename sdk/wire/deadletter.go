package wire

// DeadLetterSuffix is appended to a topic's name for its dead letters.
const DeadLetterSuffix = ".dlq"

// The headers that say where a dead letter comes from.
const (
	HeaderDeadReason   = "sluice-dlq-reason"
	HeaderDeadGroup    = "sluice-dlq-group"
	HeaderDeadAttempts = "sluice-dlq-attempts"
	// Which event it was.
	HeaderDeadTopic     = "sluice-dlq-topic"
	HeaderDeadID        = "sluice-dlq-id"
	HeaderDeadPartition = "sluice-dlq-partition"
	HeaderDeadSeq       = "sluice-dlq-seq"
	HeaderDeadTS        = "sluice-dlq-ts"
)

// HeaderDeadAll begins the headers above.
const HeaderDeadAll = "sluice-dlq-"

// HeaderRedriven is on a dead letter that is delivered again; it says which.
const HeaderRedriven = "sluice-redriven"
