package codec

import "github.com/sluice-bus/sluice/sdk/wire"

// Request is one decoded client frame. Op decides which fields count.
type Request struct {
	Op      string
	Corr    string
	HasCorr bool

	Topic string
	Group string
	Token string

	// Publish is the event of a single PUBLISH, Events those of a batch (IsBatch tells an empty
	// batch from a single publish).
	Publish wire.PublishItem
	IsBatch bool
	Events  []wire.PublishItem
	Trace   wire.Headers // of a batch: what its events without a trace of their own continue

	Subscribe wire.SubscribeOptions

	IDs      []string // id and ids of ACK, NACK and MODACK together
	Nack     wire.Nack
	ExtendMS *int64 // nil: not given
}
