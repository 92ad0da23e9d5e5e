package mongolog

import "github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"

// engine says how a server that speaks MongoDB's protocol differs from others.
type engine struct {
	version string
	// mongo says that it is MongoDB itself, not a compatible server.
	mongo bool
	// replicated says that the server honours write and read concerns.
	replicated bool
	// sharded says that a mongos is between this log and the data.
	sharded bool
	// ttl says that the server removes documents by their expireAt.
	ttl bool
	// decimals says that the server stores Decimal128.
	decimals bool
	// uncapped says that signals cannot use a capped collection.
	uncapped bool
	// maxOrdered bounds the documents of one ordered insert. It is 1 for a server that continues
	// after a failure, since that server must not insert the documents after the failed one.
	maxOrdered int
}

// encoder writes events as the engine holds them.
func (e engine) encoder(generation int64) document.Encoder {
	return document.Encoder{Decimals: e.decimals, NestedArrays: e.mongo, Generation: generation}
}
