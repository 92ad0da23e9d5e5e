package progress

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"
)

// model is a journal beside what it may hold after a power cut: the state at the last sync or one
// of those since. The last is what it holds now.
type model struct {
	disk   *vfs.MemFS
	j      *Journal
	states []map[string]string
}

func (m *model) now() map[string]string { return m.states[len(m.states)-1] }

func (m *model) put(t *rapid.T) {
	var entries []Entry
	next := maps.Clone(m.now())
	for range rapid.IntRange(1, 3).Draw(t, "entries") {
		key := rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "key")
		value := rapid.StringN(0, 20, -1).Draw(t, "value")
		entries = append(entries, Entry{key, []byte(value)})
		if next[key] = value; value == "" {
			delete(next, key)
		}
	}
	if err := m.j.Put(entries); err != nil {
		t.Fatalf("Put: %v", err)
	}
	m.states = append(m.states, next)
}

func (m *model) sync(t *rapid.T) {
	if err := m.j.Sync(t.Context()); err != nil {
		t.Fatalf("Sync: %v", err)
	}
	m.states = []map[string]string{m.now()}
}

func (m *model) reopen(t *rapid.T) {
	if err := m.j.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	m.disk = m.disk.CrashClone(vfs.CrashCloneCfg{}) // Close has made it durable
	m.open(t)
	m.check(t)
	m.states = []map[string]string{m.now()}
}

func (m *model) kill(t *rapid.T) {
	m.crash(t, 100)
	m.check(t)
	m.states = []map[string]string{m.now()}
}

func (m *model) powerCut(t *rapid.T) {
	m.crash(t, rapid.SampledFrom([]int{0, 30, 70}).Draw(t, "kept"))
	left := m.held()
	if !slices.ContainsFunc(m.states, func(s map[string]string) bool { return maps.Equal(s, left) }) {
		t.Fatalf("a power cut has left %v; want one of %v", left, m.states)
	}
	m.states = []map[string]string{left}
}

// crash goes on with what is left of the disk when it stops now.
func (m *model) crash(t *rapid.T, kept int) {
	seed := rapid.Uint64().Draw(t, "seed")
	left := m.disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: kept, RNG: rand.New(rand.NewPCG(seed, 0))})
	m.j.Close() // of what is no more
	m.disk = left
	m.open(t)
}

func (m *model) open(t *rapid.T) {
	j, _, err := open(m.disk, path, func(err error) { t.Errorf("the journal has failed: %v", err) }, 200)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	m.j = j
}

func (m *model) held() map[string]string {
	held := map[string]string{}
	for key, value := range m.j.All() {
		held[key] = string(value)
	}
	return held
}

func (m *model) check(t *rapid.T) {
	if held := m.held(); !maps.Equal(held, m.now()) {
		t.Fatalf("it holds %v; want %v", held, m.now())
	}
}

// TestModel: every Put survives a kill, every synced one a power cut, and the entries of a Put
// survive together.
func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := &model{disk: folder(t), states: []map[string]string{{}}}
		m.open(rt)
		defer func() { m.j.Close() }()
		rt.Repeat(map[string]func(*rapid.T){
			"put": m.put, "put again": m.put, "put once more": m.put,
			"sync": m.sync, "reopen": m.reopen, "kill": m.kill, "power cut": m.powerCut,
			"": m.check,
		})
	})
}
