package sdk_test

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

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/table"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

const tablePolicies = `
- name: "*"
  connection: {rate: 0}
  publish: {rate: 0}
  partitions: 4
  retention: {compact: true}
`

// TestTablesWhileTheSidecarIsKilled: one table that is there all the time, and one that is opened
// between two kills, have the latest of each key in the end, while the topic is compacted all the
// time.
func TestTablesWhileTheSidecarIsKilled(t *testing.T) { testkit.Rounds(t, tablesThroughKills) }

func tablesThroughKills(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	file := filepath.Join(dir, "policies.yaml")
	require.NoError(t, os.WriteFile(file, []byte(tablePolicies), 0o600))
	life := func(args ...string) *testkit.Sidecar {
		return testkit.StartSidecar(t, filepath.Join(dir, "data"), append([]string{"--policies", file, "--retention-interval", "20ms"},
			args...)...)
	}
	p := life()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	client, err := sluice.Dial(ctx, p.URL(), sluice.WithBackoff(5*time.Millisecond, 100*time.Millisecond))
	require.NoError(t, err)
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
		require.NoError(t, err)
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
		require.NoError(t, c.Current(ctx))
		if got, _ := c.Snapshot(); !maps.Equal(got, whole) {
			t.Errorf("table %d has %v; want %v", i, got, whole)
		}
		c.Close()
	}
}
