package wire

// DeadLetterSuffix is appended to a topic's name for its dead letters.
const DeadLetterSuffix = ".dlq"

// The headers that say where a dead letter comes from.
const (
	HeaderDeadReason   = "sluice-dlq-reason"
	HeaderDeadGroup    = "sluice-dlq-group"
	HeaderDeadAttempts = "sluice-dlq-attempts"
	HeaderDeadID       = "sluice-dlq-id"
)
