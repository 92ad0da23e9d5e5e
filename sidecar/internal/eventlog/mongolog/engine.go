package mongolog

import "github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"

// engine says how servers that speak MongoDB's protocol differ.
type engine struct {
	version string
	// mongo says that it is MongoDB itself, not a compatible server.
	mongo bool
	// replicated says that write and read concerns mean something.
	replicated bool
	// sharded says that other servers stand between this one and the data.
	sharded bool
	// ttl says that the server removes documents by their expireAt.
	ttl bool
	// decimals says that it holds Decimal128.
	decimals bool
	// uncapped says that signals cannot go by a capped collection.
	uncapped bool
	// maxOrdered bounds the documents of one ordered insert. A server that goes on after a failure
	// must not insert the documents behind the failed one.
	maxOrdered int
}

// encoder writes events as the engine holds them.
func (e engine) encoder(generation int64) document.Encoder {
	return document.Encoder{Decimals: e.decimals, NestedArrays: e.mongo, Generation: generation}
}
