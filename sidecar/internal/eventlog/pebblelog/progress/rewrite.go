package progress

import (
	"errors"
	"fmt"
	"maps"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A rewrite has these steps, so that after a crash at any point the journal's file has everything
// that was promised:
//
//  1. Copy the map of live values.
//  2. Write the copy to a new file beside the old one, and sync it. Puts go to the old file
//     meanwhile and are remembered.
//  3. With Puts held up: write what is remembered to the new file, rename it over the old one, and
//     write there from now on. A killed process leaves the one file or the other; both hold every
//     Put.
//  4. Sync the new file again, then its folder. A power cut before that leaves the one file or the
//     other; both hold, synced, every Put that a Sync has promised, for no Sync is answered between
//     the steps. Of what step 3 wrote all or nothing is left, for it is one record.
//
// So a Put waits at most for the copy of the map, or for the write and the rename of step 3, and
// never for a sync. A Sync waits for all steps.

// chunk is about how many bytes step 2 writes in one record. Several records are safe: the file
// counts only once all of it is synced.
const chunk = 256 << 10

// rewrite replaces the file by one with the live entries alone. Only syncLoop calls it, so that no
// sync runs at the same time.
func (j *Journal) rewrite() error {
	j.mu.Lock()
	live := maps.Clone(j.live)
	j.changed = map[string][]byte{}
	j.mu.Unlock()
	file, size, err := j.writeNew(live)
	if err != nil {
		return j.poison(fmt.Errorf("rewrite %s: %w", j.path, err))
	}
	old, upTo, err := j.replace(file, size)
	if err != nil {
		return j.poison(errors.Join(fmt.Errorf("rewrite %s: %w", j.path, err), file.Close()))
	}
	// The error of closing a file without pending writes means nothing.
	_ = old.Close()
	if err := errors.Join(file.SyncData(), j.syncFolder()); err != nil {
		return j.poison(fmt.Errorf("rewrite %s: %w", j.path, err))
	}
	j.mu.Lock()
	j.synced = upTo
	j.mu.Unlock()
	return nil
}

// create writes the first file of an open journal, like a rewrite without concurrent Puts.
func (j *Journal) create() error {
	file, size, err := j.writeNew(j.live)
	if err != nil {
		return err
	}
	if err := errors.Join(j.fsys.Rename(j.newPath(), j.path), j.syncFolder()); err != nil {
		return errors.Join(err, file.Close())
	}
	j.file, j.size = file, size
	return nil
}

// newPath is the path of a new file until it is renamed. The next rewrite replaces the remains of a
// crash.
func (j *Journal) newPath() string { return j.path + ".tmp" }

// writeNew writes the entries to a new file and syncs it.
func (j *Journal) writeNew(live map[string][]byte) (file vfs.File, size int64, err error) {
	file, err = j.fsys.Create(j.newPath(), vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, 0, err
	}
	size, err = writeAll(file, live, chunk)
	if err == nil {
		err = file.Sync()
	}
	if err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	return file, size, nil
}

// writeAll writes the entries as records of about chunk bytes, and returns the number of bytes
// written.
func writeAll(file vfs.File, live map[string][]byte, chunk int) (size int64, err error) {
	record := beginRecord(nil)
	flush := func() error {
		if len(record) == headerSize {
			return nil
		}
		sealRecord(record)
		n, err := file.Write(record)
		size += int64(n)
		record = beginRecord(record[:0])
		return err
	}
	for key, value := range live {
		if record = appendEntry(record, key, value); len(record) >= chunk {
			if err := flush(); err != nil {
				return 0, err
			}
		}
	}
	err = flush()
	return size, err
}

// replace adds the Puts since the rewrite began to file, which has size bytes, and makes it the
// journal's file. upTo is the last Put that it has.
func (j *Journal) replace(file vfs.File, size int64) (old vfs.File, upTo uint64, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err != nil {
		// A Put has failed meanwhile, and only the old file may have it.
		return nil, 0, j.err
	}
	more, err := writeAll(file, j.changed, maxEntries)
	if err != nil {
		return nil, 0, err
	}
	if err := j.fsys.Rename(j.newPath(), j.path); err != nil {
		return nil, 0, err
	}
	old = j.file
	j.file, j.size, j.changed = file, size+more, nil
	return old, j.written, nil
}

func (j *Journal) syncFolder() error {
	d, err := j.fsys.OpenDir(j.fsys.PathDir(j.path))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
