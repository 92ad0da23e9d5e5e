package rest

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-bus/sluice/controlplane/internal/fleet"
	"github.com/sluice-bus/sluice/controlplane/internal/health"
	reported "github.com/sluice-bus/sluice/internal/health"
	"github.com/sluice-bus/sluice/internal/httpapi/coding"
	"github.com/sluice-bus/sluice/test/require"
)

const (
	largeSidecars = 1_000
	largeTopics   = 10_000
	usersOfTopic  = 20 // sidecars
)

// largeFleet is a registry of 1,000 sidecars and 10,000 topics, each in use at 20 sidecars.
func largeFleet(t testing.TB) *fleet.Registry {
	r := fleet.NewRegistry(fleet.Config{ControlPlane: "cp"})
	for i := range largeSidecars {
		_, err := r.Connect(fleet.Node{
			ID: fmt.Sprintf("node-%04d", i), Instance: fmt.Sprint("instance-", i), Address: fmt.Sprintf("10.0.%d.%d:8083", i/250, i%250),
			StoreID: fmt.Sprint("store-", i%10), Version: "v1.0.0",
		}, fleet.Prefix{})
		require.NoError(t, err)
	}
	return r
}

// passes is a second in which each topic is used at each of its sidecars, now more and now less.
func passes(r *fleet.Registry, second int) {
	now, chance := time.Now(), rand.New(rand.NewPCG(1, uint64(second)))
	for topic := range largeTopics {
		for user := range usersOfTopic {
			node := (topic + user*largeSidecars/usersOfTopic) % largeSidecars
			r.Usage(fmt.Sprintf("node-%04d", node), largeTopic(topic), chance.Uint64N(30), chance.Uint64N(2), now)
		}
	}
	for i := range largeSidecars {
		state := &reported.State{Process: reported.Process{StoreState: "ok", StoreKind: "mongodb",
			Counts: reported.Counts{Published: int64(2000*second) + chance.Int64N(500)}}}
		r.SetHealth(fmt.Sprintf("node-%04d", i), fmt.Sprint("instance-", i), state, now)
	}
}

func largeTopic(i int) string { return fmt.Sprintf("orders.region-%02d.created-%04d", i%40, i) }

// A page that opens reads 100 KB at most, and one that stays open 2 KB a second, whatever the size of
// the fleet and its traffic.
func TestALargeFleetOnASlowLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, stop := largeFleet(t), make(chan struct{})
		tracker := health.NewTracker(r)
		a := newAPI(t, func(c *Config) { c.Registry, c.Health, c.Stopping = r, tracker, stop })
		ctx, end := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { _ = tracker.Run(ctx); close(ended) }()
		for second := range 5 {
			passes(r, second)
			time.Sleep(time.Second)
		}
		for _, path := range []string{"/v1/topics", "/v1/topics?history=1&sort=-denied_per_second", "/v1/sidecars", "/v1/overview?history=1"} {
			w := a.send("GET", path, "", "Accept-Encoding", "gzip, zstd")
			if t.Logf("%s: %d bytes", path, w.Body.Len()); w.Code != http.StatusOK || w.Body.Len() > 100_000 {
				t.Errorf("%s: %d, %d bytes", path, w.Code, w.Body.Len())
			}
		}
		shown := url.Values{"list": {"overview", "topic"}}
		for i := range 50 {
			shown.Add("name", largeTopic(i))
		}
		for name, query := range map[string]string{"overview": "?list=overview", "50 topics": "?" + shown.Encode()} {
			w := a.watch(t, query, "")
			w.Take()
			const seconds = 10
			for second := range seconds {
				passes(r, 5+second)
				time.Sleep(time.Second)
				synctest.Wait()
			}
			plain := w.Take()
			var packed bytes.Buffer
			enc := coding.Get(coding.Zstd, &packed)
			_, err := enc.Write([]byte(plain))
			require.NoError(t, err)
			require.NoError(t, enc.Flush())
			t.Logf("a watch of %s: %d bytes a second, %d compressed", name, len(plain)/seconds, packed.Len()/seconds)
			if packed.Len()/seconds > 2000 {
				t.Errorf("a watch of %s: %d bytes a second", name, packed.Len()/seconds)
			}
			coding.Put(coding.Zstd, enc)
			w.end()
			<-w.ended
		}
		close(stop)
		end()
		<-ended
	})
}

// BenchmarkWatches is what one look and 20 open pages cost, every 2 s.
func BenchmarkWatches(b *testing.B) {
	r := largeFleet(b)
	h := &handler{Config: Config{Catalog: newCatalog(b), Registry: r, Health: health.NewTracker(r)}}
	h.feed = newFeed(h.watched())
	for second := range 3 {
		passes(r, second)
	}
	for i := 0; b.Loop(); i++ {
		b.StopTimer()
		passes(r, i)
		h.feed.looked = time.Time{}
		b.StartTimer()
		turn, err := h.feed.look(time.Now())
		require.NoError(b, err)
		for range 20 {
			for _, list := range watchLists {
				h.feed.after(list, turn-1, func(name string) bool { return name == largeTopic(1) })
			}
		}
	}
}
