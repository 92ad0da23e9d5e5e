package sdk_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/table"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/sluicetest"
)

const tableTopic = "customers"

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

func dialQuiet(t rapid.TB, sidecar *sluicetest.Sidecar, opts ...sluice.Option) *sluice.Client {
	t.Helper()
	opts = append(opts, sluice.WithLogger(quiet), sluice.WithBackoff(time.Millisecond, 5*time.Millisecond))
	client, err := sluice.Dial(context.Background(), sidecar.URL, opts...)
	require.NoError(t, err)
	return client
}

// within bounds one step.
func within() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 30*time.Second)
}

// model is what the table is to be, and what it has said.
type model struct {
	t       rapid.TB
	sidecar *sluicetest.Sidecar
	client  *sluice.Client
	whole   map[string]int
	n       int

	mu      sync.Mutex
	told    map[string]int    // as the changes make it
	seqs    map[string]uint64 // of each key's last change
	changes int

	table *table.Table[int]
	due   int // changes since the table was opened, where none is compacted away
}

func (m *model) open() {
	m.t.Helper()
	ctx, cancel := within()
	defer cancel()
	m.told, m.seqs, m.changes, m.due = map[string]int{}, map[string]uint64{}, 0, len(m.whole)
	var err error
	m.table, err = table.Open(ctx, m.client, tableTopic, table.Options[int]{OnChange: m.changed, Logger: quiet})
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *model) changed(c table.Change[int]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.changes++
	_, had := m.told[c.Key]
	switch {
	case c.Deleted && !had:
		m.t.Errorf("%s is deleted, and was not there", c.Key)
	case c.Event == nil && !c.Deleted, c.Event != nil && c.Event.Seq <= m.seqs[c.Key]:
		m.t.Errorf("%s: the change %+v comes after seq %d", c.Key, c, m.seqs[c.Key])
	}
	if c.Event != nil {
		m.seqs[c.Key] = c.Event.Seq
	}
	if m.told[c.Key] = c.Value; c.Deleted {
		delete(m.told, c.Key)
	}
}

// publish publishes a value, or the deletion of a key.
func (m *model) publish(key string, deletes bool) {
	m.t.Helper()
	m.n++
	payload := fmt.Append(nil, m.n)
	if deletes {
		payload = []byte("null")
	}
	if _, err := m.client.HTTP().Publish(context.Background(), &sluice.Event{Topic: tableTopic, Key: key, Payload: payload}); err != nil {
		m.t.Fatal(err)
	}
	if key == "" {
		return
	}
	if _, had := m.whole[key]; had || !deletes {
		m.due++
	}
	if m.whole[key] = m.n; deletes {
		delete(m.whole, key)
	}
}

// recreate deletes the topic while the table has no connection, and an event with it that the table
// has not seen.
func (m *model) recreate() {
	m.t.Helper()
	ctx, cancel := within()
	defer cancel()
	m.sidecar.SetDown(false)
	if err := m.table.Current(ctx); err != nil { // it does not read the latest events, now that it has no connection
		m.t.Fatal(err)
	}
	m.sidecar.SetDown(true)
	m.publish("gone", false)
	for {
		err := m.client.HTTP().DeleteTopic(ctx, tableTopic)
		if err == nil || errors.Is(err, &wire.Error{Code: wire.NotFound}) {
			break
		}
		if !errors.Is(err, &wire.Error{Code: wire.InUse}) { // until the sidecar has noticed
			m.t.Fatal(err)
		}
	}
	clear(m.whole)
	m.publish("again", false)
	m.sidecar.SetDown(false)
}

// check compares; whole says that no change may be missing.
func (m *model) check(whole bool) {
	m.t.Helper()
	ctx, cancel := within()
	defer cancel()
	if err := m.table.Current(ctx); err != nil {
		m.t.Fatal(err)
	}
	got, _ := m.table.Snapshot()
	if !maps.Equal(got, m.whole) || m.table.Len() != len(m.whole) {
		m.t.Fatalf("the table has %v; want %v", got, m.whole)
	}
	m.table.Close() // no change comes any more
	m.mu.Lock()
	defer m.mu.Unlock()
	if !maps.Equal(m.told, m.whole) {
		m.t.Fatalf("the changes make %v; want %v", m.told, m.whole)
	}
	if whole && m.changes != m.due {
		m.t.Fatalf("%d changes; want %d", m.changes, m.due)
	}
}

// Events are published, deleted and compacted, and connections break. The table has the latest
// event of each key, and so does a copy made from its changes: the changes of a key come in the
// order of their seqs, none twice, and none missing that compaction leaves.
func TestTableProperty(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		compact := rapid.Bool().Draw(rt, "compact")
		sidecar := sluicetest.Start(sluicetest.Options{SweepEvery: time.Millisecond, Policies: fmt.Sprintf(
			"- name: \"*\"\n  connection: {rate: 0}\n  publish: {rate: 0}\n  partitions: 3\n  retention: {compact: %v}\n", compact)})
		defer sidecar.Close()
		m := &model{t: rt, sidecar: sidecar, client: dialQuiet(rt, sidecar), whole: map[string]int{}}
		defer m.client.Close()
		defer m.client.HTTP().CloseIdle()
		key := rapid.SampledFrom([]string{"", "a", "b", "c", "d", "e"})
		publish := func(rt *rapid.T) { m.publish(key.Draw(rt, "key"), rapid.IntRange(0, 3).Draw(rt, "deletes") == 0) }
		for range rapid.IntRange(0, 20).Draw(rt, "events before") {
			publish(rt)
		}
		m.open()
		defer func() { m.table.Close() }()
		whole := !compact
		rt.Repeat(map[string]func(*rapid.T){
			"publish":       publish,
			"publish again": publish,
			"disconnect":    func(*rapid.T) { sidecar.Disconnect() },
			"down":          func(*rapid.T) { sidecar.SetDown(true) },
			"up":            func(*rapid.T) { sidecar.SetDown(false) },
			"recreate": func(rt *rapid.T) {
				if compact { // where compaction alone removes events no position is too old
					rt.Skip()
				}
				m.recreate()
				whole = false
			},
			"restart": func(*rapid.T) {
				sidecar.SetDown(false)
				m.check(whole)
				m.open()
				whole = !compact
			},
		})
		sidecar.SetDown(false)
		m.check(whole)
	})
}

func openTable[T any](t *testing.T, client *sluice.Client, opts table.Options[T]) *table.Table[T] {
	t.Helper()
	opts.Logger = quiet
	c, err := table.Open(t.Context(), client, tableTopic, opts)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func startQuiet(t *testing.T, opts ...sluice.Option) (*sluicetest.Sidecar, *sluice.Client) {
	t.Helper()
	sidecar := sluicetest.Start(sluicetest.Options{})
	t.Cleanup(sidecar.Close)
	client := dialQuiet(t, sidecar, opts...)
	t.Cleanup(func() { _ = client.Close() })
	return sidecar, client
}

func publishRow(t *testing.T, client *sluice.Client, key, payload string) {
	t.Helper()
	if _, err := client.Publish(t.Context(), &sluice.Event{Topic: tableTopic, Key: key, Payload: []byte(payload)}); err != nil {
		t.Fatal(err)
	}
}

func current[T any](t *testing.T, c *table.Table[T]) {
	t.Helper()
	require.NoError(t, c.Current(t.Context()))
}

type tableCustomer struct{ City string }

func TestATableOfATopicThatIsNotThereYet(t *testing.T) {
	_, client := startQuiet(t)
	c := openTable(t, client, table.Options[tableCustomer]{Prefix: "eu-"})
	current(t, c)
	publishRow(t, client, "eu-1", `{"city":"Bern"}`)
	publishRow(t, client, "us-1", `{"city":"Boston"}`)
	current(t, c)
	if v, ok := c.Get("eu-1"); !ok || v.City != "Bern" || c.Len() != 1 {
		t.Errorf("the table has %v", maps.Collect(c.All()))
	}
	if _, ok := c.Get("us-1"); ok {
		t.Error("a key without the prefix is in the table")
	}
	if values, positions := c.Snapshot(); len(values) != 1 || !maps.Equal(positions, map[int]uint64{0: 2}) {
		t.Errorf("a snapshot: %v at %v", values, positions)
	}
	if err := c.Err(); err != nil {
		t.Error(err)
	}
	c.Close()
	if err := c.Err(); !errors.Is(err, sluice.ErrClosed) || !errors.Is(c.Current(t.Context()), sluice.ErrClosed) {
		t.Errorf("after its end: %v, %v", err, c.Current(t.Context()))
	}
}

// A key whose latest event cannot be decoded is not in the table, also where it was before.
func TestUndecodable(t *testing.T) {
	_, client := startQuiet(t)
	publishRow(t, client, "a", `{"city":1}`)
	publishRow(t, client, "b", `{"city":"Bern"}`)
	var mu sync.Mutex
	var changes []string
	c := openTable(t, client, table.Options[tableCustomer]{OnChange: func(c table.Change[tableCustomer]) {
		mu.Lock()
		defer mu.Unlock()
		changes = append(changes, fmt.Sprint(c.Key, c.Value, c.Deleted, c.Event.Seq))
	}})
	publishRow(t, client, "b", `"Basel"`)
	publishRow(t, client, "a", `{"city":"Aarau"}`)
	if _, err := client.Publish(t.Context(), &sluice.Event{Topic: tableTopic, Key: "a", Payload: []byte("null"), Binary: true}); err != nil {
		t.Fatal(err)
	}
	current(t, c)
	mu.Lock()
	defer mu.Unlock()
	if got := strings.Join(changes, "|"); got != "b{Bern} false 2|b{} true 3|a{Aarau} false 4|a{} true 5" {
		t.Errorf("changes %s", got)
	}
	raw := openTable(t, client, table.Options[*sluice.Event]{Decode: func(e *sluice.Event) (*sluice.Event, error) { return e, nil }})
	if e, _ := raw.Get("a"); e == nil || !e.Binary || string(e.Payload) != "null" {
		t.Errorf("as an event: %+v", e)
	}
	if text, _ := openTable(t, client, table.Options[json.RawMessage]{}).Get("b"); string(text) != `"Basel"` {
		t.Errorf("as JSON: %s", text)
	}
}

func TestATableHasBounds(t *testing.T) {
	_, client := startQuiet(t)
	publishRow(t, client, "a", `1`)
	publishRow(t, client, "b", `2`)
	for name, opts := range map[string]table.Options[int]{"MaxKeys": {MaxKeys: 2}, "MaxBytes": {MaxBytes: 9}} {
		c := openTable(t, client, opts)
		publishRow(t, client, "b", `3456`)
		current(t, c)
		key := "c" + name
		publishRow(t, client, key, `5678`)
		<-c.Done()
		if err := c.Err(); !errors.Is(err, table.ErrTooLarge) || !strings.Contains(err.Error(), name) || c.Len() != 2 {
			t.Errorf("%s: %v, %d keys", name, err, c.Len())
		}
		publishRow(t, client, key, `null`)
	}
	if _, err := table.Open(t.Context(), client, tableTopic, table.Options[int]{MaxKeys: 1}); !errors.Is(err, table.ErrTooLarge) {
		t.Errorf("opened: %v", err)
	}
	if _, err := table.Open(t.Context(), client, "no/topic", table.Options[int]{}); !errors.Is(err, sluice.ErrBadRequest) {
		t.Errorf("of no topic: %v", err)
	}
}

// The table has a change before its OnChange is called: Current waits for both.
func TestCurrentWaitsForOnChange(t *testing.T) {
	_, client := startQuiet(t)
	publishRow(t, client, "a", `1`)
	var told atomic.Int64
	c := openTable(t, client, table.Options[int]{OnChange: func(table.Change[int]) {
		time.Sleep(20 * time.Millisecond)
		told.Add(1)
	}})
	for range 3 {
		publishRow(t, client, "a", `2`)
	}
	current(t, c)
	if n := told.Load(); n != 4 {
		t.Errorf("OnChange had returned from %d of 4 changes", n)
	}
}

// An event that was erased while the table had no connection never comes: Current does not wait for
// it, and the row goes.
func TestCurrentAfterAnErasure(t *testing.T) {
	sidecar, client := startQuiet(t)
	publishRow(t, client, "a", `1`)
	c := openTable(t, client, table.Options[int]{})
	publishRow(t, client, "b", `2`)
	current(t, c)
	sidecar.SetDown(true)
	h := client.HTTP()
	if _, err := h.Publish(t.Context(), &sluice.Event{Topic: tableTopic, Key: "c", Payload: []byte("3")}); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"b", "c"} {
		if n, err := h.DeleteKey(t.Context(), tableTopic, key); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	sidecar.SetDown(false)
	current(t, c)
	if got := maps.Collect(c.All()); !maps.Equal(got, map[string]int{"a": 1}) {
		t.Errorf("the table has %v", got)
	}
}

// The end of the client is the table's.
func TestTheClientEnds(t *testing.T) {
	_, client := startQuiet(t)
	c := openTable(t, client, table.Options[int]{})
	_ = client.Close()
	<-c.Done()
	if err := c.Err(); !errors.Is(err, sluice.ErrClosed) {
		t.Error(err)
	}
	if _, err := table.Open(t.Context(), client, tableTopic, table.Options[int]{}); !errors.Is(err, sluice.ErrClosed) {
		t.Errorf("opened: %v", err)
	}
}
