package bubbletest

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/eventlogtest"
	"github.com/sluice-bus/sluice/sidecar/internal/roster"
	"github.com/sluice-bus/sluice/test/mongomodel"
	"github.com/sluice-bus/sluice/test/require"
)

func TestPublishesChanges(t *testing.T) {
	onModel(t, mongomodel.Options{}, func(s *shop) {
		s.do("+before")
		s.start(s.config("node"))
		time.Sleep(soon)
		began := time.Now()
		s.do("+a", "+b", "~a")
		time.Sleep(soon)
		s.do("=b", "-a")
		time.Sleep(soon)
		s.wants("+a", "+b", "~a", "=b", "-a")
		for i, payload := range []string{
			`{"op":"insert","ns":"shop.orders","key":"a","document":{"_id":"a","n":1}}`,
			`{"op":"insert","ns":"shop.orders","key":"b","document":{"_id":"b","n":1}}`,
			`{"op":"update","ns":"shop.orders","key":"a","document":{"_id":"a","n":2}}`,
			`{"op":"replace","ns":"shop.orders","key":"b","document":{"_id":"b","replaced":true}}`,
			`null`,
		} {
			e := s.log.all()[i]
			if string(e.Payload) != payload {
				s.Errorf("event %d is %s, want %s", i, e.Payload, payload)
			}
			if ns, _ := e.Headers.Get("sluice-capture-ns"); e.Topic != "shop.orders" || ns != "shop.orders" ||
				time.UnixMilli(e.TS).Before(began.Add(-time.Second)) {
				s.Errorf("event %d is %+v", i, e)
			}
		}
	})
}

// An update whose document is gone when it is looked up has none, and the delete follows.
func TestUpdateOfADocumentThatIsGone(t *testing.T) {
	onModel(t, mongomodel.Options{}, func(s *shop) {
		x := s.start(s.config("node"))
		time.Sleep(soon)
		s.do("+a")
		time.Sleep(soon)
		x.stop()
		s.do("~a", "-a")
		s.start(s.config("node"))
		time.Sleep(soon)
		s.wants("+a", "~a", "-a")
		if got, want := string(s.log.all()[1].Payload), `{"op":"update","ns":"shop.orders","key":"a","document":null}`; got != want {
			s.Errorf("the update is %s, want %s", got, want)
		}
	})
}

func TestKeys(t *testing.T) {
	onModel(t, mongomodel.Options{}, func(s *shop) {
		s.start(s.config("node"))
		time.Sleep(soon)
		object := bson.NewObjectID()
		for _, c := range []struct {
			id        any
			key, text string
		}{
			{object, object.Hex(), `{"$oid":"` + object.Hex() + `"}`},
			{"a \"b\"", `a "b"`, `"a \"b\""`},
			{"", `""`, `""`},
			{int32(17), "17", "17"},
			{int64(1) << 60, "1152921504606846976", "1152921504606846976"},
			{bson.D{{Key: "shop", Value: 1}, {Key: "n", Value: "x"}}, `{"shop":1,"n":"x"}`, `{"shop":1,"n":"x"}`},
			{time.UnixMilli(1500), `{"$date":"1970-01-01T00:00:01.5Z"}`, `{"$date":"1970-01-01T00:00:01.5Z"}`},
		} {
			n := len(s.log.all())
			if _, err := s.orders.InsertOne(s.Context(), bson.D{{Key: "_id", Value: c.id}}); err != nil {
				s.Fatal(err)
			}
			time.Sleep(soon)
			all := s.log.all()
			if len(all) != n+1 {
				s.Fatalf("%v: %d events, want one more than %d", c.id, len(all), n)
			}
			want := fmt.Sprintf(`{"op":"insert","ns":"shop.orders","key":%s,"document":{"_id":%s}}`, c.text, c.text)
			if e := all[n]; e.Key != c.key || string(e.Payload) != want {
				s.Errorf("%v: key %s and payload %s, want %s and %s", c.id, e.Key, e.Payload, c.key, want)
			}
		}
	})
}

// The next capture publishes the changes that were made while no sidecar captured.
func TestGoesOnFromThePlace(t *testing.T) {
	for _, embedded := range []bool{false, true} {
		onModel(t, mongomodel.Options{}, func(s *shop) {
			c := s.config("node")
			if embedded {
				c.Store, c.File = "", s.TempDir()+"/captures.json"
			}
			x := s.start(c)
			time.Sleep(soon)
			var want []string
			for i := range 3 {
				a, b := fmt.Sprint("+a", i), fmt.Sprint("+b", i)
				s.do(a)
				time.Sleep(soon)
				x.stop()
				s.do(b)
				time.Sleep(time.Hour)
				x = s.start(c)
				time.Sleep(soon)
				want = append(want, a, b)
			}
			s.wants(want...)
			if s.log.duplicates > 0 {
				s.Errorf("%d changes came twice, though it stopped in order", s.log.duplicates)
			}
		})
	}
}

// A sidecar that is killed between publishing and saving its place has the next one publish the
// same changes under their ids.
func TestKilledBeforeItSaves(t *testing.T) {
	var killed atomic.Bool
	onModel(t, mongomodel.Options{Fault: func(r mongomodel.Request) mongomodel.Fault {
		return mongomodel.Fault{LoseRequest: killed.Load() && r.From == "first" && r.Collection == "captures" && r.Command == "update"}
	}}, func(s *shop) {
		x := s.start(s.config("first"))
		time.Sleep(soon)
		s.do("+a")
		time.Sleep(soon)
		killed.Store(true)
		s.do("~a", "+b")
		time.Sleep(time.Minute)
		s.wants("+a", "~a", "+b")
		s.do("~a") // which the update before finds, too, when it is looked up again
		time.Sleep(time.Minute)
		x.stop()
		s.start(s.config("second"))
		time.Sleep(soon)
		s.wants("+a", "~a", "+b", "~a")
		if s.log.duplicates+s.log.conflicts == 0 {
			s.Error("nothing was published again: the place was saved all the same")
		}
		if s.log.conflicts == 0 || len(s.log.failed) > 0 {
			s.Errorf("%d conflicts, and failures by %v; a conflict counts as published", s.log.conflicts, s.log.failed)
		}
		if got := s.latest()["a"]; !strings.Contains(got, `"n":3`) {
			s.Errorf("the last event of a is %s", got)
		}
	})
}

// Elections and lost answers break streams and saves: no change is lost, doubled or out of its
// order.
func TestFailovers(t *testing.T) {
	var n atomic.Int64
	onModel(t, mongomodel.Options{Seed: 7, Fault: func(r mongomodel.Request) mongomodel.Fault {
		return mongomodel.Fault{LoseAnswer: r.From == "node" && (r.Collection == "captures" || r.Command == "getMore") && n.Add(1)%9 == 0}
	}}, func(s *shop) {
		s.start(s.config("node"))
		time.Sleep(soon)
		var want []string
		for round := range 12 {
			for i := range 5 {
				change := fmt.Sprintf("~k%d", i)
				if round == 0 {
					change = fmt.Sprintf("+k%d", i)
				}
				s.do(change)
				want = append(want, change)
				time.Sleep(time.Duration(round*50) * time.Millisecond)
			}
			if round%4 == 3 {
				p := s.set.Primary()
				s.set.Kill(p)
				time.Sleep(30 * time.Second)
				s.set.Restart(p)
			}
		}
		time.Sleep(2 * time.Minute)
		s.wantsOfEachKey(want...)
	})
}

// Changes of one document keep their order where the log refuses some for now, and one that it
// refuses for good is left out.
func TestRefusals(t *testing.T) {
	onModel(t, mongomodel.Options{}, func(s *shop) {
		s.start(s.config("node"))
		time.Sleep(soon)
		var tries int
		s.log.set(func(e *wire.Event) *wire.Error {
			tries++
			switch {
			case e.Key == "bad":
				return wire.Errorf(wire.SchemaViolation, "as the test wants it")
			case tries%3 == 0:
				return &wire.Error{Code: wire.RateLimited, Msg: "as the test wants it", RetryAfter: time.Second}
			case tries%5 == 0:
				return wire.Errorf(wire.Internal, "as the test wants it")
			case tries%7 == 0:
				return wire.Errorf(wire.NotFound, "as the test wants it")
			}
			return nil
		})
		var want []string
		for i := range 4 {
			k := fmt.Sprint("k", i)
			s.do("+"+k, "+bad", "~"+k, "-bad", "="+k, "~"+k, "-"+k)
			want = append(want, "+"+k, "~"+k, "="+k, "~"+k, "-"+k)
		}
		time.Sleep(5 * time.Minute)
		for i := range 4 {
			var got []string
			for _, e := range s.log.all() {
				op, _ := e.Headers.Get("sluice-capture-op")
				if e.Key == fmt.Sprint("k", i) {
					got = append(got, op)
				}
			}
			if want := []string{"insert", "update", "replace", "update", "delete"}; !slices.Equal(got, want) {
				s.Errorf("k%d: %q, want %q", i, got, want)
			}
		}
		if len(s.log.all()) != len(want) || s.log.failed[wire.SchemaViolation] != 8 || len(s.log.failed) != 1 {
			s.Errorf("%d events, and failures by %v", len(s.log.all()), s.log.failed)
		}
		if s.lines.Count("a change cannot be published, and is left out") != 8 {
			s.Error("the log does not say what was left out")
		}
		if s.log.deferred[wire.RateLimited] == 0 || s.log.deferred[wire.NotFound] == 0 {
			s.Errorf("refusals by %v", s.log.deferred)
		}
	})
}

// Too large a document, and a key that is too long, are left out and counted.
func TestOverTheLimits(t *testing.T) {
	onModel(t, mongomodel.Options{}, func(s *shop) {
		c := s.config("node")
		c.Limits.PayloadBytes, c.Limits.KeyBytes = 200, 20
		s.start(c)
		time.Sleep(soon)
		if _, err := s.orders.InsertOne(s.Context(),
			bson.D{{Key: "_id", Value: "large"}, {Key: "x", Value: strings.Repeat("x", 200)}}); err != nil {
			s.Fatal(err)
		}
		s.do("+"+strings.Repeat("k", 21), "+a", "-large")
		time.Sleep(soon)
		s.wants("+a", "-large")
		if s.log.failed[wire.PayloadTooLarge] != 1 || s.log.failed[wire.BadRequest] != 1 {
			s.Errorf("failures by %v", s.log.failed)
		}
	})
}

// A place that the oplog has passed stops the capture with an error that names the gap, and a
// re-read cures it.
func TestPlaceInTheOplogLost(t *testing.T) {
	onModel(t, mongomodel.Options{}, func(s *shop) {
		c := s.config("node")
		x := s.start(c)
		time.Sleep(soon)
		s.do("+a", "+b")
		time.Sleep(soon)
		until := time.Now().UTC()
		x.stop()
		time.Sleep(time.Hour)
		s.do("~a", "+c", "-b")
		time.Sleep(time.Hour)
		s.do("~c")
		s.set.ForgetOplog()
		begins := time.Now().UTC()
		x = s.start(c)
		time.Sleep(10 * time.Minute)
		s.do("+d")
		time.Sleep(10 * time.Minute)
		stats := x.Stats()
		if !stats.Stopped || !stats.Active {
			s.Errorf("it says %+v", stats)
		}
		for _, at := range []time.Time{until, begins} {
			if says := at.Format("2006-01-02T15:04"); !strings.Contains(stats.State, says) {
				s.Errorf("the state does not name %s: %s", says, stats.State)
			}
		}
		if stats.Lag == nil || *stats.Lag < (2*time.Hour).Seconds() {
			s.Errorf("the lag is %v", stats.Lag)
		}
		if n := s.lines.Count("the capture has stopped"); n != 1 {
			s.Errorf("the log says so %d times", n)
		}
		s.wants("+a", "+b")
		x.stop()

		x = s.start(c)
		s.reread(x)
		time.Sleep(soon)
		s.do("+e")
		time.Sleep(soon)
		s.wants("+a", "+b", ".a", ".c", ".d", "+e")
		x.stop()
		x = s.start(c) // reads nothing again
		time.Sleep(soon)
		s.do("~e")
		time.Sleep(soon)
		s.wants("+a", "+b", ".a", ".c", ".d", "+e", "~e")
		if stats := x.Stats(); stats.Stopped || stats.State != "ok" || *stats.Lag > 3 {
			s.Errorf("it says %+v", stats)
		}
		x.stop()
	})
}

// The lag shows a database that is away from the start on, and later changes are captured once it
// is back.
func TestAwayFromTheStart(t *testing.T) {
	onModel(t, mongomodel.Options{}, func(s *shop) {
		for i := range 3 {
			s.set.Part("node", fmt.Sprint("m", i))
		}
		x := s.start(s.config("node"))
		time.Sleep(10 * time.Minute)
		if stats := x.Stats(); !stats.Active || stats.State == "ok" || stats.Lag == nil || *stats.Lag < (9*time.Minute).Seconds() {
			s.Errorf("it says %+v", stats)
		}
		if n := s.lines.Count("the collection cannot be captured"); n != 1 {
			s.Errorf("the log says so %d times", n)
		}
		s.set.JoinAll()
		time.Sleep(time.Minute)
		s.do("+a")
		time.Sleep(soon)
		s.wants("+a")
		if stats := x.Stats(); stats.State != "ok" || *stats.Lag > 3 {
			s.Errorf("it says %+v", stats)
		}
	})
}

// While nothing changes the place is saved now and then, so that the oplog does not pass it.
func TestIdle(t *testing.T) {
	onModel(t, mongomodel.Options{}, func(s *shop) {
		c := s.config("node")
		c.Store, c.File = "", s.TempDir()+"/captures.json" // a place in the store is itself in the oplog behind its token
		s.start(c)
		time.Sleep(time.Hour)
		if _, err := s.orders.Database().Collection("others").InsertOne(s.Context(), bson.D{{Key: "_id", Value: 1}}); err != nil {
			s.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		place, err := os.ReadFile(c.File)
		if err == nil {
			c.File += "-as-it-was"
			err = os.WriteFile(c.File, place, 0o600)
		}
		require.NoError(s, err)
		s.set.ForgetOplog()
		x := s.start(c)
		time.Sleep(soon)
		s.do("+a")
		time.Sleep(soon)
		s.wants("+a")
		if state := x.Stats().State; state != "ok" {
			s.Error(state)
		}
	})
}

// A collection that is dropped stops the capture: its documents have no deletes.
func TestDropped(t *testing.T) {
	onModel(t, mongomodel.Options{}, func(s *shop) {
		c := s.config("node")
		x := s.start(c)
		time.Sleep(soon)
		s.do("+a")
		time.Sleep(soon)
		s.do("+b")
		require.NoError(s, s.orders.Drop(s.Context()))
		s.do("+c")
		time.Sleep(10 * time.Minute)
		s.wants("+a", "+b")
		if stats := x.Stats(); !stats.Stopped || !strings.Contains(stats.State, "dropped or renamed") {
			s.Errorf("it says %+v", stats)
		}
		if n := s.lines.Count("the capture has stopped"); n != 1 {
			s.Errorf("the log says so %d times", n)
		}
		x.stop()
		s.reread(s.start(c))
		time.Sleep(soon)
		s.do("~c")
		time.Sleep(soon)
		s.wants("+a", "+b", ".c", "~c")
	})
}

// A re-read goes on where it was killed, for all types of _id, and changes made meanwhile come
// last.
func TestRereadIsGoneOnWith(t *testing.T) {
	const each = 1500
	var killed atomic.Bool
	onModel(t, mongomodel.Options{Fault: func(r mongomodel.Request) mongomodel.Fault {
		return mongomodel.Fault{LoseRequest: killed.Load() && r.From == "first", Silent: true}
	}}, func(s *shop) {
		var docs []any
		for i := range each {
			docs = append(docs, bson.D{{Key: "_id", Value: i}, {Key: "n", Value: 1}},
				bson.D{{Key: "_id", Value: fmt.Sprintf("s%04d", i)}, {Key: "n", Value: 1}})
		}
		if _, err := s.orders.InsertMany(s.Context(), docs); err != nil {
			s.Fatal(err)
		}
		c := s.config("first")
		s.log.set(func(*wire.Event) *wire.Error {
			if len(s.log.events) >= each && !killed.Load() {
				killed.Store(true)
			}
			if killed.Load() {
				return wire.Errorf(wire.StoreUnavailable, "as the test wants it")
			}
			time.Sleep(time.Millisecond)
			return nil
		})
		x := s.start(c)
		s.reread(x)
		time.Sleep(time.Minute)
		x.stop()
		if n := len(s.log.all()); n < each || n == len(docs) {
			s.Fatalf("%d of %d documents are published", n, len(docs))
		}
		s.log.set(nil)
		s.do("~s0000", "-s0001")
		if _, err := s.orders.UpdateByID(s.Context(), 3, bson.D{{Key: "$set", Value: bson.D{{Key: "n", Value: 2}}}}); err != nil {
			s.Fatal(err)
		}
		c = s.config("second")
		s.start(c)
		time.Sleep(time.Minute)
		latest := s.latest()
		if len(latest) != len(docs)-1 || !strings.Contains(latest["s0000"], `"n":2`) || !strings.Contains(latest["3"], `"n":2`) ||
			latest["s0001"] != "" {
			s.Errorf("%d keys; s0000 is %s, s0001 %s, 3 %s", len(latest), latest["s0000"], latest["s0001"], latest["3"])
		}
		if s.log.duplicates > each+1000 {
			s.Errorf("%d documents were read again: the re-read has begun from the start", s.log.duplicates)
		}
	})
}

// fleet is the sidecars of one log.
type fleet struct {
	*eventlogtest.Nodes
	mu      sync.Mutex
	rosters []*roster.Roster
}

func (f *fleet) announced([]eventlog.GroupName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.rosters {
		r.Wake()
	}
}

// path is one sidecar's way to the log.
type path struct {
	eventlog.Nodes
	cut *atomic.Bool
}

func (p path) SaveNode(ctx context.Context, n eventlog.Node) error {
	if p.cut.Load() {
		return eventlog.ErrUnavailable
	}
	return p.Nodes.SaveNode(ctx, n)
}

// One of two sidecars captures. The other one goes on where that one stops, is cut off, or is
// paused and comes back.
func TestOneSidecarAtATime(t *testing.T) {
	onModel(t, mongomodel.Options{}, func(s *shop) {
		f := &fleet{Nodes: eventlogtest.NewNodes()}
		cut := map[string]*atomic.Bool{}
		start := func(name string) sidecar {
			cut[name] = &atomic.Bool{}
			c := s.config(name)
			c.Roster = roster.New(roster.Config{Nodes: path{f.Nodes, cut[name]}, Name: name, Logger: c.Logger, Announced: f.announced})
			f.mu.Lock()
			f.rosters = append(f.rosters, c.Roster)
			f.mu.Unlock()
			x := s.start(c)
			ctx, cancel := context.WithCancel(context.Background())
			var running sync.WaitGroup
			running.Go(func() { _ = c.Roster.Run(ctx) })
			stop := x.stop
			x.stop = sync.OnceFunc(func() {
				stop()
				cancel()
				running.Wait()
			})
			s.stops = append(s.stops, x.stop)
			return x
		}
		sidecars := map[string]sidecar{"a": start("a"), "b": start("b")}
		active := func() (name, other string) {
			s.Helper()
			a, b := sidecars["a"].Stats().Active, sidecars["b"].Stats().Active
			switch {
			case a == b:
				s.Fatalf("a captures: %v; b captures: %v", a, b)
			case a:
				return "a", "b"
			}
			return "b", "a"
		}
		time.Sleep(time.Minute)
		var want []string
		change := func() {
			k := fmt.Sprint("k", len(want))
			s.do("+"+k, "~"+k)
			want = append(want, "+"+k, "~"+k)
		}
		first, second := active()
		change()
		time.Sleep(soon)
		cut[first].Store(true)
		for range 20 {
			change()
			time.Sleep(time.Second)
		}
		if now, _ := active(); now != second {
			s.Errorf("%s captures, and is cut off", first)
		}
		cut[first].Store(false)
		for range 20 {
			change()
			time.Sleep(time.Second)
		}
		now, other := active()
		sidecars[now].stop()
		change()
		time.Sleep(soon)
		if !sidecars[other].Stats().Active {
			s.Errorf("%s does not capture, though %s has stopped", other, now)
		}
		s.wantsOfEachKey(want...)
	})
}

// A sidecar stops within its grace although the server does not answer its last commands. The driver
// keeps the connection of such a command for a moment, for a late answer.
func TestStopWhileTheServerIsSilent(t *testing.T) {
	var silent atomic.Bool
	o := mongomodel.Options{Fault: func(mongomodel.Request) mongomodel.Fault {
		return mongomodel.Fault{LoseAnswer: silent.Load(), Silent: silent.Load()}
	}}
	onModel(t, o, func(s *shop) {
		c := s.start(s.config("a"))
		s.do("+a")
		time.Sleep(5 * time.Second)
		silent.Store(true)
		began := time.Now()
		c.stop()
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("the stop took %v", took)
		}
		silent.Store(false)
	})
}
