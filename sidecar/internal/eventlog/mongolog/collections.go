package mongolog

// The collections, all with Options.Prefix before their names. Documents:
//
//	topics   {_id: topic, partitions}                          inserted once
//	events   {_id: topic/id, topic, partition, seq, ts, id, …} see package document
//	heads    {_id: topic/partition/seq, …}                     inserted before events up to seq are removed
//	epochs   {_id: topic/group/partition/number, …}            inserted once, then written by its owner alone
//	marks    {_id: topic/group/id, expireAt}
//	nodes    {_id: node id, beat, …}                           written by the node; left, by whoever removes it
//	signals  capped: what sidecars tell each other
//	boards   {_id: log id, last, signals}                      the same, where capped collections do not do
//	meta     {_id: "store", id}                                inserted once
//
// A request may be executed long after its sender has given it up. So every
// update and delete names in its filter the state that it replaces: a number
// that only rises (save, beat, last), a claim or a seq that is given once, or
// that the document has come to its end (gone, left, expired).
const (
	topicsName  = "topics"
	eventsName  = "events"
	headsName   = "heads"
	epochsName  = "epochs"
	marksName   = "marks"
	nodesName   = "nodes"
	signalsName = "signals"
	metaName    = "meta"
)
