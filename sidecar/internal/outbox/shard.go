package outbox

import "github.com/sluice-bus/sluice/sidecar/internal/eventlog"

// Shards is the number of parts of an outbox. Drainers with different numbers would publish the
// same documents.
const Shards = 16

// shardOf is the shard of a document: by topic and key, or by topic and id if it has no key. The
// function is part of the data format: FNV-1a with 64 bits over topic, a zero byte and key, modulo
// Shards.
func shardOf(topic, key string) int { return int(hash(topic, key) % Shards) }

func hash(a, b string) uint64 {
	return eventlog.Hash(eventlog.Hash(eventlog.Hash(eventlog.HashStart, a), "\x00"), b)
}

// shardSet is a set of shards, a bit for each.
type shardSet uint16

const allShards shardSet = 1<<Shards - 1

func (s shardSet) has(shard int) bool { return s>>shard&1 == 1 }
