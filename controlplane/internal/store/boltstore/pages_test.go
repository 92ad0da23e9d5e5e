package boltstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/internal/private"
	"github.com/sluice-bus/sluice/test/require"
)

// Whatever bbolt writes is accepted.
func TestPagesOfBbolt(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		path := filepath.Join(dir, "file")
		require.NoError(t, os.RemoveAll(path))
		db, err := bbolt.Open(path, private.File, &bbolt.Options{NoSync: true, NoFreelistSync: true})
		require.NoError(t, err)
		defer db.Close()
		for range rapid.IntRange(1, 8).Draw(t, "transactions") {
			require.NoError(t, db.Update(func(tx *bbolt.Tx) error { return changeAny(t, tx) }))
			require.NoError(t, checkFile(db))
		}
	})
}

// changeAny puts and deletes runs of keys, long and short, in buckets within buckets.
func changeAny(t *rapid.T, tx *bbolt.Tx) error {
	for range rapid.IntRange(1, 6).Draw(t, "runs") {
		b, err := tx.CreateBucketIfNotExists([]byte(rapid.SampledFrom([]string{"a", "b"}).Draw(t, "bucket")))
		if err == nil && rapid.Bool().Draw(t, "within") {
			b, err = b.CreateBucketIfNotExists([]byte("within"))
		}
		if err != nil {
			return err
		}
		from, count := rapid.IntRange(0, 400).Draw(t, "from"), rapid.IntRange(1, 200).Draw(t, "count")
		keySize := rapid.SampledFrom([]int{1, 300}).Draw(t, "size of the keys")
		value := make([]byte, rapid.SampledFrom([]int{0, 40, 900, 9000}).Draw(t, "size of the values"))
		remove := rapid.Bool().Draw(t, "remove")
		for i := range count {
			key := append(bytes.Repeat([]byte("k"), keySize), fmt.Sprintf("%05d", from+i)...)
			if remove {
				err = b.Delete(key)
			} else {
				err = b.Put(key, value)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func checkFile(db *bbolt.DB) error {
	file, err := os.Open(db.Path())
	if err != nil {
		return err
	}
	defer file.Close()
	return db.View(func(tx *bbolt.Tx) error { return checkPages(file, tx) })
}

// treePages are pages of a file: the root's, which has the small bucket, that of the large bucket, and
// the first two below that.
type treePages struct {
	root, branch, first       []byte
	firstNumber, secondNumber uint64
}

const (
	childAt    = headerBytes + 8 // of the first element of a branch
	overflowAt = 12
)

func TestDamagedPage(t *testing.T) {
	set := binary.NativeEndian.PutUint64
	small := []byte("small")
	cases := map[string]func(p treePages){
		"says that it is another one":                           func(p treePages) { p.first[0] ^= 1 },
		"is of another kind":                                    func(p treePages) { p.first[8] ^= 1 },
		"has another number of elements":                        func(p treePages) { p.first[11] = 0xff },
		"has another number of elements, none":                  func(p treePages) { p.first[10], p.first[11] = 0, 0 },
		"goes over the end of the file":                         func(p treePages) { p.first[overflowAt+3] = 0x80 },
		"uses one that is used twice, by size":                  func(p treePages) { p.first[overflowAt] = byte(p.secondNumber - p.firstNumber) },
		"uses one that is used twice":                           func(p treePages) { set(p.branch[childAt+elementBytes:], p.firstNumber) },
		"uses one that is used twice, a circle":                 func(p treePages) { copy(p.branch[childAt:childAt+8], p.branch) },
		"is not in the file":                                    func(p treePages) { set(p.branch[childAt:], 1<<40) },
		"is not in the file, but a meta page":                   func(p treePages) { set(p.branch[childAt:], 1) },
		"has a key that is not where it belongs":                func(p treePages) { p.branch[bytes.LastIndex(p.branch, []byte("key-"))] ^= 1 },
		"has a key that is not where it belongs, out of order":  func(p treePages) { p.first[bytes.Index(p.first, []byte("key-"))] ^= 1 },
		"has a key that is not where it belongs, nor in a page": func(p treePages) { p.first[headerBytes+4+3] = 0xff },
		"has an element of another kind":                        func(p treePages) { p.first[headerBytes] = 2 },
		"has an element of another kind, a short bucket": func(p treePages) {
			p.first[headerBytes] = 1
			copy(p.first[headerBytes+12:], []byte{bucketBytes - 1, 0})
		},
		"has a bucket that is damaged": func(p treePages) { p.root[bytes.Index(p.root, small)+len(small)+bucketBytes] = 7 },
	}
	path := filepath.Join(t.TempDir(), "file")
	good, at := makeTree(t, path)
	for want, change := range cases {
		text := bytes.Clone(good)
		page := func(n uint64) []byte { return text[int(n)*os.Getpagesize():][:os.Getpagesize()] }
		change(treePages{page(at[0]), page(at[1]), page(at[2]), at[2], at[3]})
		require.NoError(t, os.WriteFile(path, text, private.File))
		db, err := openFile(path, true)
		require.NoError(t, err)
		want, _, _ = strings.Cut(want, ",")
		if err := checkFile(db); !errors.Is(err, errDamaged) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
		require.NoError(t, db.Close())
	}
}

// makeTree makes a file with a small and a large bucket, and returns the numbers of its [treePages].
func makeTree(t *testing.T, path string) (text []byte, at [4]uint64) {
	t.Helper()
	db, err := openFile(path, false)
	require.NoError(t, err)
	require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
		small, err := tx.CreateBucket([]byte("small"))
		if err != nil {
			return err
		}
		large, err := tx.CreateBucket([]byte("large"))
		for i := range 100 {
			err = errors.Join(err, large.Put(fmt.Appendf(nil, "key-%03d", i), make([]byte, 300)))
		}
		return errors.Join(err, small.Put([]byte("key"), []byte("value")))
	}))
	require.NoError(t, db.View(func(tx *bbolt.Tx) error {
		at[0], at[1] = uint64(tx.Cursor().Bucket().RootPage()), uint64(tx.Bucket([]byte("large")).RootPage())
		return nil
	}))
	require.NoError(t, db.Close())
	text, err = os.ReadFile(path)
	require.NoError(t, err)
	branch := text[int(at[1])*os.Getpagesize():]
	for i := range 2 {
		at[2+i] = binary.NativeEndian.Uint64(branch[childAt+i*elementBytes:])
	}
	return text, at
}
