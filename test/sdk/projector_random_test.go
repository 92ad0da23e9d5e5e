package sdk_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-bus/sluice/internal/pause"
	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/mongo/projector"
	"github.com/sluice-bus/sluice/sdk/option"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/sluicetest"
	"github.com/sluice-bus/sluice/test/testkit"
)

// The names of the child's environment variables.
const killSidecar = "SLUICE_TEST_KILL_SIDECAR"

// watch follows the guards of a collection until stop is called, and fails if one goes back.
func watch(t testing.TB, coll *mongo.Collection) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		seen := map[string]int64{}
		for ctx.Err() == nil {
			var docs []struct {
				ID     string              `bson:"_id"`
				Sluice struct{ Seq int64 } `bson:"_sluice"`
			}
			cursor, err := coll.Find(ctx, bson.D{})
			if err == nil {
				err = cursor.All(ctx, &docs)
			}
			if err != nil {
				continue // the next look tells
			}
			now := map[string]int64{}
			for _, d := range docs {
				now[d.ID] = d.Sluice.Seq
			}
			for id, was := range seen {
				if now[id] < was {
					t.Errorf("the document of %s went back from seq %d to %d", id, was, now[id])
				}
			}
			seen = now
		}
	}()
	return sync.OnceFunc(func() { cancel(); <-ended })
}

// Two processes project events that are delivered late, twice and to both. They start and stop at
// any time. The documents are those of the topic's latest events, and none ever goes back.
func TestRandomDeliveries(t *testing.T) {
	testkit.Rounds(t, func(t *testing.T, seed uint64) {
		random := rand.New(rand.NewPCG(seed, 0))
		var mu sync.Mutex
		mishaps := 20
		sidecar := startSidecar(t, sluicetest.Options{Fate: func(op string) sluicetest.Fate {
			mu.Lock()
			defer mu.Unlock()
			if mishaps > 0 && op == "ACK" && random.IntN(3) == 0 {
				mishaps--
				return []sluicetest.Fate{sluicetest.BrokenBefore, sluicetest.BrokenAfter}[random.IntN(2)]
			}
			return sluicetest.Served
		}})
		draw := func(n int) int { mu.Lock(); defer mu.Unlock(); return random.IntN(n) }
		client := dialURL(t, sidecar.URL)
		coll, _ := newCollection(t)
		cfg := configOf(coll)
		cfg.Batch = 1 + draw(20)
		// Slow handlers go on writing when their events are with another process.
		cfg.Subscribe = append(cfg.Subscribe, option.AckTimeout(10*time.Millisecond), option.MaxExtension(0))
		cfg.Map = func(e *sluice.Event) (any, error) {
			if draw(10) == 0 {
				pause.For(t.Context(), time.Duration(draw(40))*time.Millisecond)
			}
			return mapped(e)
		}
		stopped := watch(t, coll)
		defer stopped()
		stops := []func(){func() {}, func() {}}
		want := map[string]string{}
		for step := range 200 {
			switch i := draw(2); draw(20) {
			case 0:
				stops[i]()
				stops[i] = startProjector(t, dialURL(t, sidecar.URL), cfg)
			case 1:
				stops[i]()
			case 2:
				if err := client.HTTP().SeekGroup(t.Context(), projectedTopic, projectedGroup, admin.Position{From: "earliest"}); err != nil &&
					step > 100 {
					t.Log(err) // there is no subscription yet
				}
			default:
				key, city := fmt.Sprint("k", draw(5)), fmt.Sprint("city ", step)
				if draw(4) == 0 {
					publishCustomer(t, client, key, `null`)
					delete(want, key)
				} else {
					publishCustomer(t, client, key, fmt.Sprintf(`{"city":%q}`, city))
					want[key] = city
				}
			}
		}
		startProjector(t, dialURL(t, sidecar.URL), cfg)
		settled(t, client)
		wantCities(t, coll, want)
	})
}

// A process is killed with SIGKILL again and again while it projects, beside another one that is
// not killed.
func TestProjectorIsKilled(t *testing.T) {
	if url := os.Getenv(killSidecar); url != "" {
		projectUntilKilled(t, url)
		return
	}
	t.Parallel()
	coll, uri := newCollection(t)
	sidecar := startSidecar(t, sluicetest.Options{})
	client := dialURL(t, sidecar.URL)
	defer watch(t, coll)()
	want := map[string]string{}
	for life := range 4 {
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestProjectorIsKilled$")
		child.Env = append(os.Environ(), killSidecar+"="+sidecar.URL, killURI+"="+uri, killDatabase+"="+coll.Database().Name())
		var stderr strings.Builder
		child.Stderr = &stderr
		out, err := child.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, child.Start())
		for i := range 300 {
			key, city := fmt.Sprint("k", i%40), fmt.Sprintf("city %d of life %d", i, life)
			publishCustomer(t, client, key, fmt.Sprintf(`{"city":%q}`, city))
			want[key] = city
		}
		line, err := bufio.NewReader(out).ReadString('\n') // it is in the middle of it
		_ = child.Process.Kill()
		_ = child.Wait()
		if err != nil {
			t.Fatalf("the process said %q, %v\n%s", line, err, stderr.String())
		}
	}
	startProjector(t, client, configOf(coll))
	settled(t, client)
	wantCities(t, coll, want)
}

func projectUntilKilled(t *testing.T, url string) {
	time.AfterFunc(3*patience, func() { os.Exit(1) }) // the test has not killed it
	client, err := sluice.Dial(t.Context(), url)
	require.NoError(t, err)
	cfg := configOf(connectCustomers(t, os.Getenv(killURI), os.Getenv(killDatabase)))
	cfg.Batch = 20
	n := 0
	cfg.Observer.Applied = func(events, _ int, _ time.Duration) { // one batch at a time
		if n += events; n >= 60 {
			fmt.Println("on the way")
		}
	}
	t.Fatal(projector.Run(t.Context(), client, cfg))
}
