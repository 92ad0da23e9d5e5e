package core

import (
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
)

// The collections of a log. Documents:
//
//	topics   {_id: topic, partitions}                          inserted once
//	events   {_id: topic/id, topic, partition, seq, ts, id, …} see package document
//	         the same with deliver_at, …                       see package scheduled
//	         {_id: {head: topic}, head, settled, first, …}     see package heads
//	         {_id: {void: topic, partition, seq}, …}           see package events
//	epochs   {_id: topic/group/partition/number, …}            inserted once, then written by its owner alone
//	marks    {_id: topic/group/id, expireAt}                   without a group: an erasure, by its digest
//	redrives {_id: topic/group/partition/seq/letter}           inserted on request, deleted once the dead letter is gone
//	times    {_id: topic/partition/level/number, highest}      see package times
//	nodes    {_id: life, name, beat, state, …}                 inserted once, then written by the node, or who declares it dead
//	         {_id: "roll", n, changes}                         upserted; see package nodes
//	signals_0, …  {node, slots, appended, moved, nodes}        capped: messages between sidecars about topics of these slots
//	meta     {_id: "store", id, format}                        inserted once
//
// The server may execute a request long after its sender has given it up. So every update and
// delete names in its filter the state that it replaces: a number that only rises (save, beat), a
// claim or a seq that is given once, or that the document is over (gone, expired), or is not
// (live). Only a push on the roll may be late.
const (
	Topics   = "topics"
	Events   = "events"
	Epochs   = "epochs"
	Marks    = "marks"
	Redrives = "redrives"
	Times    = "times"
	Nodes    = "nodes"
	Signals  = "signals"
	Meta     = "meta"
)

// SignalShards is the number of collections of signals.
const SignalShards = 8

// SignalsName is the name of one of the collections of signals.
func SignalsName(shard int) string { return Signals + "_" + strconv.Itoa(shard) }

// Owns reports whether a collection of the log's database belongs to the log.
func Owns(collection string) bool {
	switch collection {
	case Topics, Events, Epochs, Marks, Redrives, Times, Nodes, Meta:
		return true
	}
	return strings.HasPrefix(collection, Signals+"_")
}

// MajorityWrites is the write concern of everything except the events of topics whose policy names
// another one.
var MajorityWrites = &writeconcern.WriteConcern{W: "majority", Journal: new(true)}

// Majority is a collection that is written and read at majority.
func (s *Store) Majority(name string) *mongo.Collection { return majority(s.DB, name) }

// MajorityOfBeats is Majority on the connections for beats.
func (s *Store) MajorityOfBeats(name string) *mongo.Collection {
	return majority(s.Beats.Database(s.DB.Name()), name)
}

func majority(db *mongo.Database, name string) *mongo.Collection {
	return db.Collection(name, options.Collection().SetWriteConcern(MajorityWrites).SetReadConcern(readconcern.Majority()))
}

// Written is a collection for writes with a write concern.
func (s *Store) Written(name string, w *writeconcern.WriteConcern) *mongo.Collection {
	return s.DB.Collection(name, options.Collection().SetWriteConcern(w))
}
