package systemtest

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/internal/mongotest"
	"github.com/sluice-bus/sluice/internal/sidecartest"
	"github.com/sluice-bus/sluice/internal/soak"
	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/option"
	"github.com/sluice-bus/sluice/sdk/table"
)

const tablePolicies = `
- name: "*"
  connection: {rate: 0}
  publish: {rate: 0}
  partitions: 4
  retention: {compact: true}
`

// TestTablesWhileTheSidecarIsKilled: one table that is there all the time, and one that is opened between two kills, have
// the latest of each key in the end, while the topic is compacted all the time.
func TestTablesWhileTheSidecarIsKilled(t *testing.T) { soak.Rounds(t, tablesThroughKills) }

func tablesThroughKills(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	file := filepath.Join(dir, "policies.yaml")
	if err := os.WriteFile(file, []byte(tablePolicies), 0o600); err != nil {
		t.Fatal(err)
	}
	life := func(args ...string) *sidecartest.Process {
		return sidecartest.Start(t, filepath.Join(dir, "data"), append([]string{"--policies", file, "--retention-interval", "20ms"}, args...)...)
	}
	p := life()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	client, err := sluice.Dial(ctx, p.URL(), sluice.WithBackoff(5*time.Millisecond, 100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	open := func() *table.Table[string] {
		t.Helper()
		seqs := map[string]uint64{}
		c, err := table.Open(ctx, client, topic, table.Options[string]{OnChange: func(c table.Change[string]) {
			if c.Event == nil || c.Event.Seq <= seqs[c.Key] {
				t.Errorf("the change %+v comes after seq %d", c, seqs[c.Key])
				return
			}
			seqs[c.Key] = c.Event.Seq
		}})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	tables := []*table.Table[string]{open()}
	want := make([]map[string]string, publishers)
	stop := make(chan struct{})
	var load sync.WaitGroup
	for i := range want {
		want[i] = map[string]string{}
		random := rand.New(rand.NewPCG(seed, uint64(1+i)))
		load.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				key, text := fmt.Sprintf("%d-%d", i, random.IntN(keys)), fmt.Sprint(n)
				e := &sluice.Event{Topic: topic, Key: key, Payload: fmt.Appendf(nil, "%q", text)}
				if want[i][key] = text; random.IntN(5) == 0 {
					e.Payload = []byte("null")
					delete(want[i], key)
				}
				if _, err := client.Publish(ctx, e); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range kills {
		select {
		case <-time.After(100*time.Millisecond + time.Duration(random.IntN(200))*time.Millisecond): // the load goes on: that is the test
		case <-ctx.Done():
		}
		p.Kill()
		p = life("--listen", p.Listen, "--replay-listen", p.Replay)
		tables = append(tables, open())
	}
	close(stop)
	load.Wait()
	whole := map[string]string{}
	for _, of := range want {
		maps.Copy(whole, of)
	}
	for i, c := range tables {
		if err := c.Current(ctx); err != nil {
			t.Fatal(err)
		}
		if got, _ := c.Snapshot(); !maps.Equal(got, whole) {
			t.Errorf("table %d has %v; want %v", i, got, whole)
		}
		c.Close()
	}
}

// TestATableOnASharedStore: a table has what is published through another sidecar of its store, while its own is killed,
// the topic is compacted, and the partitions move between the members of a group.
func TestATableOnASharedStore(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	file := filepath.Join(t.TempDir(), "policies.yaml")
	if err := os.WriteFile(file, []byte(tablePolicies), 0o600); err != nil {
		t.Fatal(err)
	}
	db := mongotest.Shared(t)
	args := []string{"--policies", file, "--retention-interval", "100ms", "--lease", "3s", "--store", db.URI(db.NewDatabase(t))}
	a, b := sidecartest.Start(t, t.TempDir(), args...), sidecartest.Start(t, t.TempDir(), args...)
	publishing, reading := dial(ctx, t, a), dial(ctx, t, b)
	whole, round := map[string]int{}, 0
	publish := func() {
		t.Helper()
		round++
		var events []sluice.Event
		for i := range 20 {
			key, payload := fmt.Sprint("k", i), fmt.Append(nil, round)
			if whole[key] = round; (i+round)%5 == 0 {
				payload = []byte("null")
				delete(whole, key)
			}
			events = append(events, sluice.Event{Topic: topic, Key: key, Payload: payload})
		}
		if _, err := publishing.PublishBatch(ctx, events); err != nil {
			t.Fatal(err)
		}
	}
	join := func(client *sluice.Client) *sluice.Subscription {
		t.Helper()
		sub, err := client.Subscribe(ctx, topic, group, func(context.Context, *sluice.Message) error { return nil }, option.FromEarliest())
		if err != nil {
			t.Fatal(err)
		}
		return sub
	}
	publish()
	c, err := table.Open(ctx, reading, topic, table.Options[int]{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	is := func(c *table.Table[int]) {
		t.Helper()
		if err := c.Current(ctx); err != nil {
			t.Fatal(err)
		}
		if got, _ := c.Snapshot(); !maps.Equal(got, whole) {
			t.Fatalf("after round %d the table has %v; want %v", round, got, whole)
		}
	}
	is(c)
	first := join(publishing)
	publish()
	is(c)
	second := join(reading)
	publish()
	first.Drain() // its partitions go to the other sidecar
	publish()
	is(c)
	b.Kill()
	publish()
	sidecartest.Start(t, t.TempDir(), append(args, "--listen", b.Listen)...)
	publish()
	is(c)
	late, err := table.Open(ctx, reading, topic, table.Options[int]{})
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	is(late)
	second.Stop()
}
