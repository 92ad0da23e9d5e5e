package pebblelog

import (
	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// tuning returns Pebble's options, for one process among others on a small machine, with steady
// appends, reads near the tail, and look-ups of ids that mostly do not exist.
func tuning(fsys vfs.FS, h *health) *pebble.Options {
	o := &pebble.Options{
		FS:     fsys,
		Logger: h,
		// The journal is the index's log.
		DisableWAL: true,
		// Pinned: a newer Pebble must not raise it without a new formatNumber.
		FormatMajorVersion: pebble.FormatWALSyncChunks,
		// A memtable holds the entries of some ten thousand events, which a start reads from the journal again.
		// Pebble starts with 256 KiB and doubles, so an idle sidecar does not pay for it. Up to three exist while
		// flushes lag behind.
		MemTableSize:                8 << 20,
		MemTableStopWritesThreshold: 3,
		// Pebble counts memtables towards the cache's size, so this bounds both together. One
		// memtable filling and one being flushed leave 16 MiB for filters, indexes and replays;
		// with 16 MiB in all, the filters would be read from disk for every look-up of an id.
		// Readers of the tail get events from memory instead.
		CacheSize: 48 << 20,
		// If writes stopped until L0 is compacted, they would stall for seconds; more read
		// amplification for a while is better.
		L0CompactionThreshold: 4,
		L0StopWritesThreshold: 64,
		LBaseMaxBytes:         64 << 20,
		// One compaction in the usual case, so that it takes one core at most; a second when the
		// first cannot keep up.
		CompactionConcurrencyRange: func() (int, int) { return 1, 2 },
		MaxOpenFiles:               512,
		EventListener: &pebble.EventListener{
			BackgroundError: func(err error) { h.Errorf("background: %v", err) },
			// Only the reads of that part of a table fail. Without this Pebble ends.
			DataCorruption: func(info pebble.DataCorruptionInfo) {
				h.log.Error("a table of the index is damaged: reads of that part fail; restore the data folder from a backup, or see what is left "+
					"with sluice-sidecar verify", "file", info.Path, "error", info.Details)
			},
		},
	}
	for i := range o.Levels {
		// With ten bits per key one look-up in a hundred of an absent id reads a block in vain.
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
		// Replays read whole blocks of events.
		o.Levels[i].BlockSize = 16 << 10
	}
	return o
}
