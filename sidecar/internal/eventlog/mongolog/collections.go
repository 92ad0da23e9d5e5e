package mongolog

import "strings"

// The collections, all with Options.Prefix before their names. Documents:
//
//	topics   {_id: topic, partitions}                          inserted once
//	events   {_id: topic/id, topic, partition, seq, ts, id, …} see package document
//	         the same with deliver_at, …                       see schedule.go
//	         {_id: {head: topic}, head, settled, first, …}     see heads.go
//	         {_id: {void: topic, partition, seq}, …}           see holes.go
//	epochs   {_id: topic/group/partition/number, …}            inserted once, then written by its owner alone
//	marks    {_id: topic/group/id, expireAt}                    without a group: an erasure, by its digest
//	redrives {_id: topic/group/partition/seq/letter}            inserted on request, deleted once the dead letter is gone
//	nodes    {_id: life, name, beat, state, …}                 inserted once, then written by the node; dead, by the sidecar that declares it
//	         {_id: "roll", n, changes}                         upserted; see nodes.go
//	signals_0, …  {node, slots, appended, moved, nodes}        capped: messages between sidecars about topics of these slots
//	meta     {_id: "store", id, format}                        inserted once
//
// The server may execute a request long after its sender has given it up. So every update and
// delete names in its filter the state that it replaces: a number that only rises (save, beat,
// last), a claim or a seq that is given once, or that the document is over (gone, expired), or is
// not (live). Only a push on the roll may be late.
const (
	topicsName  = "topics"
	eventsName  = "events"
	epochsName  = "epochs"
	marksName   = "marks"
	redriveName = "redrives"
	nodesName   = "nodes"
	signalsName = "signals"
	metaName    = "meta"
)

// Owns reports whether a collection of the log's database belongs to the log, if Prefix is empty.
func Owns(collection string) bool {
	switch collection {
	case topicsName, eventsName, epochsName, marksName, redriveName, nodesName, metaName:
		return true
	}
	return strings.HasPrefix(collection, signalsName+"_")
}
