package pebblelog

import "context"

// HeapBytes is how many bytes of Go's heap Pebble keeps for its cache and its memtables: none in a build
// with cgo, which allocates them outside of the heap.
func (l *Log) HeapBytes() int64 {
	if !onHeap || l.enter(context.Background()) != nil {
		return 0
	}
	defer l.leave()
	m := l.db.Metrics()
	return m.BlockCache.Size + int64(m.MemTable.Size) + int64(m.MemTable.ZombieSize)
}
