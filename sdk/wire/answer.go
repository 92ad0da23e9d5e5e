package wire

// Receipt is the answer to a publisher for an accepted event.
type Receipt struct {
	ID string
	TS int64
	// Partition and Seq are not known, and left out, while the event is spooled.
	Partition int
	Seq       uint64
	// DeliverAt is when a scheduled event is due, in milliseconds since the epoch; 0: it is not
	// scheduled. Until then the event has no TS, Partition and Seq.
	DeliverAt int64
	// Duplicate: the topic held the event before.
	Duplicate bool
	// Spooled: durable in the sidecar's spool ("durability":"spool"), not yet in the store
	// ("durability":"store").
	Spooled bool
}

// ResultItem is the outcome of one event of a batch: Err, or else Receipt.
type ResultItem struct {
	Receipt Receipt
	Err     *Error
}

// Delivery is one event on its way to a consumer.
type Delivery struct {
	Event   Event
	Attempt int // from 1
	// AckDeadlineMS is the time that was left when the event was sent.
	AckDeadlineMS int64
	// Lease names this delivery to the acks of HTTP; "" where it was not pulled.
	Lease string
}
