package mongolog

// The collections, all with Options.Prefix before their names. Documents:
//
//	topics   {_id: topic, partitions}                          inserted once
//	events   {_id: topic/id, topic, partition, seq, ts, id, …} see package document
//	heads    {_id: topic/partition/seq, …}                     inserted before events up to seq are removed
//	epochs   {_id: topic/group/partition/number, …}            inserted once, then written by its owner alone
//	marks    {_id: topic/group/id, expireAt}
//	nodes    {_id: node id, …}                                 written by the node alone
//	signals  capped: what sidecars tell each other
//	meta     {_id: "store", id}                                inserted once
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
