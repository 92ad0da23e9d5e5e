package boltstore_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/sluice-bus/sluice/controlplane/internal/store"
	"github.com/sluice-bus/sluice/controlplane/internal/store/boltstore"
	"github.com/sluice-bus/sluice/test/damage"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

// TestDamage changes one file of a data folder in one way, again and again, and opens that: it has
// everything, or is refused with the file's name.
func TestDamage(t *testing.T) {
	t.Parallel()
	testkit.Rounds(t, damageFolder)
}

func damageFolder(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	dir := t.TempDir()
	s := open(t, dir)
	fill(t, s, rng, 1, 60)
	_, err := s.Secret(t.Context(), "key", []byte("secret"))
	require.NoError(t, err)
	require.NoError(t, s.Close())
	older := contents(t, dir)
	s = open(t, dir)
	fill(t, s, rng, 61, 80)
	want := entries(t, s)
	require.NoError(t, s.Close())
	now := contents(t, dir)
	counts := map[string]int{}
	damaged := t.TempDir()
	for _, name := range slices.Sorted(maps.Keys(now)) {
		for kind, change := range damage.Kinds {
			for range 10 {
				then, ok := change(rng, now[name], older[name])
				if !ok {
					continue
				}
				files := maps.Clone(now)
				files[name] = then
				counts[openDamaged(t, damaged, name+", "+kind, files, want)]++
			}
		}
	}
	t.Logf("%v", counts)
}

// fill makes changes of all kinds.
func fill(t *testing.T, s *boltstore.Store, rng *rand.Rand, from, to int) {
	t.Helper()
	for i := from; i <= to; i++ {
		change := store.Commit{Revision: int64(i), Token: fmt.Sprint(i), Reason: strings.Repeat("x", rng.IntN(3000)*(1+i%20/19*3))}
		require.NoError(t, s.Append(t.Context(), change))
		require.NoError(t, s.Enter(t.Context(), store.RosterEntry{Key: fmt.Sprint(i % 20), Life: fmt.Sprint(i), Doc: make([]byte, 200)}))
		require.NoError(t, s.PutUsage(t.Context(), store.UsageDoc{Day: fmt.Sprintf("2026-01-%02d", i%20), Number: int64(i)}))
	}
}

// openDamaged opens a folder with these files: it is refused with the store's name, or has
// everything, also after all its pages were written anew.
func openDamaged(t *testing.T, dir, what string, files map[string][]byte, want []any) (outcome string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if text == nil {
			require.NoError(t, os.RemoveAll(path))
		} else {
			require.NoError(t, os.WriteFile(path, text, 0o600))
		}
	}
	s, err := boltstore.Open(dir)
	if err != nil {
		if !strings.Contains(err.Error(), boltstore.FileName) {
			t.Errorf("%s: the refusal names no file: %v", what, err)
		}
		return "refused"
	}
	same := func(when string) {
		if !reflect.DeepEqual(entries(t, s), want) {
			t.Errorf("%s: silent, %s", what, when)
		}
	}
	same("at once")
	writeAll(t, s, want)
	require.NoError(t, s.Close())
	if s, err = boltstore.Open(dir); err != nil {
		t.Fatalf("%s: refused once it was written to: %v", what, err)
	}
	same("once it was written to")
	require.NoError(t, s.Close())
	return "whole"
}

// writeAll writes all pages of a store anew.
func writeAll(t *testing.T, s *boltstore.Store, entries []any) {
	t.Helper()
	same := map[int64][]string{}
	for _, c := range entries[0].([]store.Commit) {
		same[c.Revision] = nil
	}
	require.NoError(t, s.Forget(t.Context(), same))
	var entering sync.WaitGroup // in one transaction
	for _, e := range entries[1].([]store.RosterEntry) {
		entering.Go(func() {
			if err := s.Enter(t.Context(), e); err != nil {
				t.Error(err)
			}
		})
	}
	entering.Wait()
	_, err := s.Secret(t.Context(), "another", []byte("fresh"))
	require.NoError(t, err)
	require.NoError(t, s.PutUsage(t.Context(), store.UsageDoc{Day: "2026-02-01", Number: 1}))
}

// TestDamagedPages changes one place of the store's file, page by page.
func TestDamagedPages(t *testing.T) {
	t.Parallel()
	for _, changes := range []int{2, 40} { // all in the first page; in a tree of pages
		t.Run(fmt.Sprint(changes), func(t *testing.T) {
			t.Parallel()
			damagePages(t, changes)
		})
	}
}

func damagePages(t *testing.T, changes int) {
	rng := rand.New(rand.NewPCG(1, 2))
	dir := t.TempDir()
	s := open(t, dir)
	_, err := s.Secret(t.Context(), "key", []byte("secret"))
	require.NoError(t, err)
	var older [][]byte
	for i := 1; i <= changes; i++ {
		fill(t, s, rng, i, i)
		older = append(older, contents(t, dir)[boltstore.FileName])
		require.NoError(t, s.PutUsage(t.Context(), store.UsageDoc{Day: "2026-01-01", Writer: "other", Number: int64(i)}))
		older = append(older, contents(t, dir)[boltstore.FileName])
	}
	require.NoError(t, s.PutUsage(t.Context(), store.UsageDoc{Day: "2026-01-02", Writer: "other", Number: 1}))
	want := entries(t, s)
	require.NoError(t, s.Close())
	now := contents(t, dir)
	pages := usedPages(t, dir)
	file := now[boltstore.FileName]
	cases := append(testkit.Some(t, 64, flips(rng, file, pages)), replacements(rng, file, older[max(0, len(older)-8):], pages)...)
	counts := map[string]int{}
	damaged := t.TempDir()
	for _, c := range cases {
		files := maps.Clone(now)
		files[boltstore.FileName] = bytes.Clone(file)
		c.change(files[boltstore.FileName])
		counts[openDamaged(t, damaged, c.what, files, want)]++
	}
	t.Logf("of %d pages: %v", len(file)/os.Getpagesize(), counts)
}

type pageDamage struct {
	what   string
	change func(file []byte)
}

// flips are those of all bits in the headers of pages, and others in what comes after them.
func flips(rng *rand.Rand, file []byte, pages []int) (cases []pageDamage) {
	const header = 16
	size := os.Getpagesize()
	for _, p := range pages {
		flip := func(n, bit int) {
			what := fmt.Sprintf("page %d, byte %d, bit %d", p, n, bit)
			cases = append(cases, pageDamage{what, func(file []byte) { file[p*size+n] ^= 1 << bit }})
		}
		for bit := range 8 * header {
			flip(bit/8, bit%8)
		}
		elements := int(binary.NativeEndian.Uint16(file[p*size+10:]))
		for n := range min(header*elements, size/4) { // an element has the header's size
			flip(header+n, rng.IntN(8))
		}
		for range 20 {
			flip(rng.IntN(size), rng.IntN(8))
		}
	}
	return cases
}

// replacements are zeroes, other pages, and what was there before, in the place of pages.
func replacements(rng *rand.Rand, file []byte, older [][]byte, pages []int) (cases []pageDamage) {
	size := os.Getpagesize()
	for _, p := range pages {
		add := func(what string, by []byte) {
			if now := file[p*size:][:size]; !bytes.HasPrefix(by, now) {
				cases = append(cases, pageDamage{fmt.Sprintf("page %d, %s", p, what), func(file []byte) { copy(file[p*size:][:size], by) }})
			}
		}
		add("zeroed", make([]byte, size))
		for range 2 {
			other := pages[rng.IntN(len(pages))]
			add(fmt.Sprintf("page %d in its place", other), file[other*size:])
		}
		for i, before := range older {
			add(fmt.Sprintf("as it was %d changes before", len(older)-i), before[min(p*size, len(before)):])
		}
	}
	return cases
}

// usedPages are the numbers of the pages that a store's file uses.
func usedPages(t *testing.T, dir string) (used []int) {
	t.Helper()
	db, err := bbolt.Open(filepath.Join(dir, boltstore.FileName), 0o600, &bbolt.Options{NoFreelistSync: true})
	require.NoError(t, err)
	require.NoError(t, db.View(func(tx *bbolt.Tx) error {
		for p := range int(tx.Size()) / os.Getpagesize() {
			info, err := tx.Page(p)
			if err != nil {
				return err
			}
			if info.Type != "free" {
				used = append(used, p)
			}
		}
		return nil
	}))
	require.NoError(t, db.Close())
	return used
}

// contents are the files of a folder.
func contents(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	names, err := os.ReadDir(dir)
	require.NoError(t, err)
	files := map[string][]byte{}
	for _, n := range names {
		text, err := os.ReadFile(filepath.Join(dir, n.Name()))
		require.NoError(t, err)
		files[n.Name()] = text
	}
	return files
}

// entries are all that a store has.
func entries(t *testing.T, s *boltstore.Store) []any {
	t.Helper()
	var commits []store.Commit
	for last := int64(0); ; last = commits[len(commits)-1].Revision {
		page, err := s.After(t.Context(), last)
		require.NoError(t, err)
		if len(page) == 0 {
			break
		}
		commits = append(commits, page...)
	}
	roster, err := s.Entered(context.Background())
	require.NoError(t, err)
	secret, err := s.Secret(t.Context(), "key", []byte("another"))
	require.NoError(t, err)
	usage, err := s.UsageBetween(t.Context(), "2026-01-01", "2026-01-31")
	require.NoError(t, err)
	return []any{commits, roster, secret, usage}
}
