package journal

import (
	"bytes"
	"errors"
	"io"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Each start begins a segment, so many restarts leave many small files. A start puts those that follow one another
// into one file. Every byte keeps its position, so the headers of all but the first stay where they were, between
// frames, and nothing that knows a position changes. A crash leaves the files of before, or a file that has what the
// next ones have, too; it ends where the next one begins.

// maxSmall is how many small segments there may be before they are merged.
const maxSmall = 64

// Merge merges small segments below a base, if there are many.
func (r *Recovered) Merge(below uint64) error {
	small := 0
	var chains [][]uint64 // bases that follow one another, and where the last one ends
	for i, base := range r.Bases {
		if base >= below || i+1 == len(r.Bases) {
			break
		}
		whole, err := r.isSmall(base, r.Bases[i+1])
		if err != nil {
			return err
		}
		if !whole {
			continue
		}
		small++
		next := r.Bases[i+1]
		if n := len(chains) - 1; n >= 0 && chains[n][len(chains[n])-1] == base && int64(next-chains[n][0]) <= r.j.roll {
			chains[n] = append(chains[n], next)
		} else {
			chains = append(chains, []uint64{base, next})
		}
	}
	if small <= maxSmall {
		return nil
	}
	for _, chain := range chains {
		if len(chain) == 2 {
			continue
		}
		if err := r.concatenate(chain); err != nil {
			return err
		}
		for _, base := range chain[1 : len(chain)-1] {
			r.omit(base)
			r.j.segs.remove(base)
			if err := r.j.fsys.Remove(r.j.path(base)); err != nil {
				return err
			}
		}
	}
	return nil
}

// Merged is the base of the segment that a segment without a file was merged into, and the size of its file; found is
// false if there is none.
func (r *Recovered) Merged(base uint64) (into uint64, size int64, found bool, err error) {
	i, _ := slices.BinarySearch(r.Bases, base)
	if i == 0 {
		return 0, 0, false, nil
	}
	into = r.Bases[i-1]
	file, err := r.j.fsys.Open(r.j.path(into))
	if err != nil {
		return 0, 0, false, err
	}
	defer file.Close()
	size, err = r.Size(into)
	header := make([]byte, headerSize)
	if at := int64(base - into); err == nil && at+headerSize <= size {
		_, err = file.ReadAt(header, at)
	}
	return into, size, isHeader(header, base), err
}

// isSmall says that a segment ends where the next one begins, and is far smaller than usual.
func (r *Recovered) isSmall(base, next uint64) (bool, error) {
	size, err := r.Size(base)
	return size >= int64(next-base) && int64(next-base) < r.j.roll/64, err
}

// concatenate puts the segments of a chain into the file of the first.
func (r *Recovered) concatenate(chain []uint64) (err error) {
	j := r.j
	name := j.path(chain[0])
	out, err := j.fsys.Create(name+".merged", vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	for i, base := range chain[:len(chain)-1] {
		if err = r.copySegment(out, base, chain[i+1]); err != nil {
			break
		}
	}
	if err == nil {
		err = out.Sync()
	}
	if err = errors.Join(err, out.Close()); err != nil {
		return errors.Join(err, j.fsys.Remove(name+".merged"))
	}
	if err := j.fsys.Rename(name+".merged", name); err != nil {
		return err
	}
	return syncFolder(j.fsys, j.folder())
}

func (r *Recovered) copySegment(out io.Writer, base, next uint64) error {
	in, err := r.j.fsys.Open(r.j.path(base), vfs.SequentialReadsOption)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, io.NewSectionReader(in, 0, int64(next-base)))
	return errors.Join(err, in.Close())
}

// skipHeader reads the header that merged segments have at a position, between two frames. ok is false if there is
// one and it is not whole.
func skipHeader(in interface {
	io.Reader
	Peek(n int) ([]byte, error)
}, at uint64) (skipped, ok bool, err error) {
	if b, err := in.Peek(len(magic)); err != nil || string(b) != magic {
		return false, true, ignoreEnd(err)
	}
	header := make([]byte, headerSize)
	if _, err := io.ReadFull(in, header); err != nil {
		return true, false, ignoreEnd(err)
	}
	return true, isHeader(header, at), nil
}

// isHeader says that b is a header for a base, of this store or of one whose backup was restored.
func isHeader(b []byte, base uint64) bool {
	return bytes.Equal(b, appendHeader(nil, [16]byte(b[len(magic):]), base))
}
