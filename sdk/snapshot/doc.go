// Package snapshot keeps a consumer's state together with its positions in the topic. A consumer
// that starts again takes the last good snapshot and then the events behind it, instead of all
// events that were ever published:
//
//	store := &snapshot.File{Dir: "/var/lib/billing", Name: "totals"}
//	totals, err := snapshot.Follow(ctx, client, "orders", store, snapshot.Options[Totals]{
//		Apply: func(ctx context.Context, t *Totals, e *sluice.Event) error { return t.add(e) },
//	})
//
// Package sdk/mongo/snapshotstore keeps snapshots in MongoDB.
//
// State and positions are saved together, so the state has each event once, whenever the process is
// killed. A consumer that starts again calls Apply again for the events behind the last snapshot.
// Events that Apply publishes need an id that is made from the event's.
//
// A snapshot that is torn or corrupt is passed over for the one before. One that is so old that the
// topic has not kept all events behind it is refused with [ErrTooOld].
//
// A consumer without a group gets all events, so each process has the whole state. For a map of the
// latest event of each key no snapshot is needed: see package table.
package snapshot
