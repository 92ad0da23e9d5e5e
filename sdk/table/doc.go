// Package table keeps the latest event of each key of a topic as a map in memory:
//
//	customers, err := table.Open(ctx, client, "customers", table.Options[Customer]{})
//	ann, ok := customers.Get("customer-17")
//
// [Open] reads the latest event of each key, which costs as much as there are keys and not as there
// were events, and follows the topic from exactly there. When the connection breaks, the table goes
// on right behind what it has. Where it cannot, because retention has removed events meanwhile, or
// it had no connection for half a day, it reads the latest events again, and each difference is a
// change like any other.
//
// An event with the payload null deletes its key. Events without a key are passed over. A table
// does not notice that an event it has was erased, or its topic deleted: publish null before.
//
// All is in memory, within [Options.MaxKeys] and [Options.MaxBytes]. While the latest events are
// read again both the old rows and the new ones are.
package table
