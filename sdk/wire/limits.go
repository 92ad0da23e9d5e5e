package wire

import "math"

// Limits bound a client's requests. Every one is configurable.
type Limits struct {
	PayloadBytes int // of one event, as kept (compact JSON, or the bytes)
	HeaderCount  int // the publisher's own headers of one event
	HeaderBytes  int // names and values together
	KeyBytes     int
	BatchEvents  int
	BatchBytes   int // of one batch as sent
	FrameBytes   int // of one WebSocket message
	JSONDepth    int // nesting of arrays and objects
}

// DefaultLimits are the contract's section 2.
func DefaultLimits() Limits {
	return Limits{
		PayloadBytes: 1 << 20,
		HeaderCount:  64,
		HeaderBytes:  16 << 10,
		KeyBytes:     512,
		BatchEvents:  1000,
		BatchBytes:   8 << 20,
		FrameBytes:   16 << 20,
		JSONDepth:    512,
	}
}

// Bounds that are part of the event's definition and not configurable.
const (
	MaxIDChars = 128
	// MaxIDBytes is the most that the UTF-8 form of an id takes.
	MaxIDBytes    = MaxIDChars * 4
	MaxTopicBytes = 255
	// MaxReadTopicBytes bounds a topic's name with the ".dlq" suffixes that dead letters, and the
	// dead letters of those, put behind it.
	MaxReadTopicBytes = 512
	MaxGroupBytes     = 255
	// MaxTS is the largest ts: 2^53-1, the largest whole number that every JSON reader keeps exact.
	MaxTS = 1<<53 - 1

	MaxTags       = 64 // and as many entries of caused_by
	MaxTagBytes   = 256
	MaxSIDBytes   = 128
	MaxTTLMS      = 10 * 365 * 24 * 60 * 60 * 1000 // ten years
	MaxTokenBytes = 64 << 10

	MaxSettleIDs   = 10_000 // ids of one ACK, NACK or MODACK
	MaxReasonBytes = 4096   // of a NACK
)

// Bounds of the options of SUBSCRIBE, ACK, NACK and MODACK.
const (
	MaxInflight        = 100_000
	MaxDeliverBatch    = 1000
	MaxDeliverAttempts = 1_000_000
	MaxAckTimeoutMS    = 24 * 60 * 60 * 1000            // a day
	MaxDelayMS         = MaxAckTimeoutMS                // of NACK and MODACK
	MaxDedupeTTLMS     = 10 * 365 * 24 * 60 * 60 * 1000 // ten years
)

// Bounds and defaults of a pull over HTTP.
const (
	MaxPull           = 1000 // events of one answer
	MaxPullWaitMS     = 60_000
	DefaultPull       = 100
	DefaultPullWaitMS = 10_000
)

// MaxPosition is the highest position that a partition can have.
const MaxPosition = math.MaxInt64 - 1
