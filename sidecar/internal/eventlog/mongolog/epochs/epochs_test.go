package epochs

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/coretest"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/setup"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/topics"
	"github.com/sluice-bus/sluice/test/faultproxy"
	"github.com/sluice-bus/sluice/test/mongotest"
	"github.com/sluice-bus/sluice/test/require"
)

func anEpoch(partition int, number uint64, owner string) eventlog.Epoch {
	return eventlog.Epoch{
		GroupPartition: eventlog.GroupPartition{Topic: "orders", Group: "billing", Partition: partition},
		Number:         number, Owner: owner, Progress: eventlog.Progress{Cursor: 1},
	}
}

func anHeir(partition int, number uint64, owner string) eventlog.Epoch {
	e := anEpoch(partition, number, owner)
	e.Inherit = true
	return e
}

// sharedStore makes an empty store, and returns a function that opens its epochs.
func sharedStore(t *testing.T) func() *Epochs {
	t.Helper()
	server := mongotest.Shared(t)
	url := server.URI(server.NewDatabase(t))
	return func() *Epochs { return openOn(t, url) }
}

func openOn(t *testing.T, url string) *Epochs {
	t.Helper()
	s := coretest.Open(t, core.Config{URL: url})
	s.Prepare = setup.New(s).Prepare
	return New(s, topics.New(s))
}

func takeEpoch(t *testing.T, l *Epochs, e eventlog.Epoch) error {
	t.Helper()
	return l.TakeEpochs(t.Context(), []eventlog.Epoch{e})[0]
}

func latestEpoch(t *testing.T, l *Epochs) eventlog.Epoch {
	t.Helper()
	epochs, err := l.LatestEpochs(t.Context(), "orders", "billing")
	if err != nil || len(epochs) != 1 {
		t.Fatalf("LatestEpochs = %+v, %v; want one", epochs, err)
	}
	return epochs[0]
}

func TestOldEpochsAreForgotten(t *testing.T) {
	open := sharedStore(t)
	l := open()
	first := anEpoch(0, 1, "n1")
	require.NoError(t, takeEpoch(t, l, first))
	first.Progress.Cursor = 42
	require.NoError(t, l.SaveEpochs(t.Context(), []eventlog.Epoch{first}, nil))
	for number := uint64(2); number <= 6; number++ {
		require.NoError(t, takeEpoch(t, l, anHeir(0, number, "n")))
		left, err := l.store.Majority(core.Epochs).CountDocuments(t.Context(), bson.D{})
		if err != nil || left != 2 {
			t.Errorf("with epoch %d there are %d documents, %v; want that one and the one before", number, left, err)
		}
	}
	// A sidecar that has slept since the first epoch finds none of the numbers free.
	for number := range uint64(6) {
		if err := takeEpoch(t, open(), anEpoch(0, number+1, "late")); !errors.Is(err, eventlog.ErrEpochTaken) {
			t.Errorf("epoch %d of a late taker: %v; want ErrEpochTaken", number+1, err)
		}
	}
	if err := l.SaveEpochs(t.Context(), []eventlog.Epoch{anEpoch(0, 3, "n")}, nil); !errors.Is(err, eventlog.ErrFenced) {
		t.Errorf("SaveEpochs of a forgotten epoch: %v; want ErrFenced", err)
	}
	if e := latestEpoch(t, l); e.Number != 6 || e.Owner != "n" || e.Progress.Cursor != 42 {
		t.Errorf("the latest epoch is %+v; want number 6 of n, from cursor 42", e)
	}
}

func TestFencedByAnotherLog(t *testing.T) {
	open := sharedStore(t)
	one, two := open(), open()
	own := anEpoch(0, 1, "n1")
	require.NoError(t, errors.Join(takeEpoch(t, one, own), takeEpoch(t, two, anHeir(0, 2, "n2"))))
	own.Progress.Cursor = 9
	for range 2 { // the log refuses the second by itself: it has learned from the first
		if err := one.SaveEpochs(t.Context(), []eventlog.Epoch{own}, nil); !errors.Is(err, eventlog.ErrFenced) {
			t.Errorf("SaveEpochs: %v; want ErrFenced", err)
		}
	}
	if e := latestEpoch(t, two); e.Number != 2 || e.Progress.Cursor != 1 {
		t.Errorf("the latest epoch is %+v; want number 2 from cursor 1", e)
	}
}

// TestTakerThatDied: a taker inserts its epoch, and dies before it has made the progress its own.
// The next epoch still gets the progress.
func TestTakerThatDied(t *testing.T) {
	open := sharedStore(t)
	l := open()
	first, died := anEpoch(0, 1, "n1"), anHeir(0, 2, "n2")
	first.Progress.Cursor = 42
	require.NoError(t, takeEpoch(t, l, first))
	if _, err := l.store.Majority(core.Epochs).InsertOne(t.Context(), newEpochDoc(&died, "a call")); err != nil {
		t.Fatal(err)
	}
	if e := latestEpoch(t, l); e.Number != 2 || e.Progress.Cursor != 42 {
		t.Errorf("the latest epoch is %+v; want number 2, from cursor 42", e)
	}
	require.NoError(t, takeEpoch(t, l, anHeir(0, 3, "n3")))
	if e := latestEpoch(t, l); e.Number != 3 || e.Progress.Cursor != 42 {
		t.Errorf("the latest epoch is %+v; want number 3, from cursor 42", e)
	}
}

// TestTakeoverRace has two logs take one partition from each other, each saving as long as it can.
// Saved progress is never lost.
func TestTakeoverRace(t *testing.T) {
	open := sharedStore(t)
	const rounds = 12
	logs := []*Epochs{open(), open()}
	require.NoError(t, takeEpoch(t, logs[0], anEpoch(0, 1, "n0")))
	var saved atomic.Uint64
	var owners sync.WaitGroup
	for number := uint64(1); number <= rounds; number++ {
		from := latestEpoch(t, logs[number%2]).Progress.Cursor
		if from < saved.Load() {
			t.Fatalf("epoch %d goes on from cursor %d; %d was saved", number, from, saved.Load())
		}
		begun := make(chan struct{})
		begin := sync.OnceFunc(func() { close(begun) })
		owners.Go(func() {
			defer begin()
			e := anEpoch(0, number, "n")
			for e.Progress.Cursor = from + 1; ; e.Progress.Cursor++ {
				err := logs[(number-1)%2].SaveEpochs(t.Context(), []eventlog.Epoch{e}, nil)
				if err != nil {
					if !errors.Is(err, eventlog.ErrFenced) {
						t.Errorf("SaveEpochs: %v", err)
					}
					return
				}
				saved.Store(e.Progress.Cursor)
				begin()
			}
		})
		<-begun
		if err := takeEpoch(t, logs[number%2], anHeir(0, number+1, "n")); err != nil {
			t.Errorf("TakeEpochs: %v", err)
		}
		owners.Wait()
	}
}

// TestEpochsWithFaults loses requests and replies of the commands that take and save epochs. The
// answers are still true.
func TestEpochsWithFaults(t *testing.T) {
	s := mongotest.Shared(t)
	proxy := faultproxy.New(t, s.Addr())
	l := openOn(t, s.URIVia(proxy.Addr(), s.NewDatabase(t)))
	number := uint64(0)
	for name, lose := range map[string]func() <-chan struct{}{"request": proxy.CutNextRequest, "reply": proxy.CutAfterNextReply} {
		for _, command := range []string{"insert", "update", "find"} {
			proxy.Only(func(request []byte) bool {
				return bytes.Contains(request, []byte(command+"\x00")) && bytes.Contains(request, []byte(core.Epochs+"\x00"))
			})
			lost := lose()
			number++
			own := anHeir(0, number, "n")
			if err := takeEpoch(t, l, own); err != nil {
				t.Errorf("TakeEpochs with a lost %s of %s: %v", name, command, err)
			}
			<-lost
			lost = lose()
			own.Progress.Cursor = 10 * number
			if err := l.SaveEpochs(t.Context(), []eventlog.Epoch{own}, nil); err != nil {
				t.Errorf("SaveEpochs with a lost %s of %s: %v", name, command, err)
			}
			if e := latestEpoch(t, l); e.Number != number || e.Progress.Cursor != 10*number {
				t.Errorf("the latest epoch is %+v; want number %d, from cursor %d", e, number, 10*number)
			}
			if err := takeEpoch(t, l, own); !errors.Is(err, eventlog.ErrEpochTaken) {
				t.Errorf("TakeEpochs of epoch %d again: %v; want ErrEpochTaken", number, err)
			}
			<-lost // of SaveEpochs, or at the latest of this
		}
	}
}

func TestChain(t *testing.T) {
	c := chain{
		{ID: "1", Number: 1, Claim: "a", Inherit: true, Progress: progressDoc{Cursor: 10}},
		{ID: "2", Number: 2, Claim: "b", Progress: progressDoc{Cursor: 20}},
		{ID: "4", Number: 4, Claim: "c", Inherit: true, Progress: progressDoc{Cursor: 40}},
		{ID: "5", Number: 5, Claim: "d", Inherit: true, Progress: progressDoc{Cursor: 50}},
	}
	for number, want := range map[uint64]uint64{1: 10, 2: 20, 4: 20, 5: 20} {
		if got := c.progress(number); got.Cursor != want {
			t.Errorf("epoch %d goes on from %d; want %d", number, got.Cursor, want)
		}
	}
	for number, want := range map[uint64][]string{1: nil, 2: nil, 4: {"1"}, 5: {"1", "2"}} {
		var got []string
		for _, d := range c.outdated(number) {
			got = append(got, d.ID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("epoch %d outdates %q; want %q", number, got, want)
		}
	}
	for _, test := range []struct {
		name    string
		number  uint64
		claim   string
		taken   uint64
		refused bool
	}{
		{"the latest, also when its insert was repeated", 5, "d", 0, false},
		{"somebody else's", 5, "x", 0, true},
		{"one that is covered by somebody else's", 4, "c", 0, true},
		{"one that is gone", 3, "x", 0, true},
		{"one that the same call has gone beyond", 5, "d", 6, true},
		{"one on top of another of the same call", 5, "d", 4, false},
	} {
		e := anEpoch(0, test.number, "n")
		err := c.refusal(&e, test.claim, test.taken)
		if errors.Is(err, eventlog.ErrEpochTaken) != test.refused || (err != nil) != test.refused {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

func TestFencesAreBounded(t *testing.T) {
	f := fences{latest: map[eventlog.GroupPartition]uint64{}}
	for p := range maxFences + 10 {
		f.learn(eventlog.GroupPartition{Topic: "t", Group: "g", Partition: p}, 7)
	}
	if len(f.latest) != maxFences {
		t.Errorf("%d fences are kept; the bound is %d", len(f.latest), maxFences)
	}
	at := eventlog.GroupPartition{Topic: "t", Group: "g", Partition: maxFences + 9}
	if err := f.check([]eventlog.Epoch{{GroupPartition: at, Number: 6}}); !errors.Is(err, eventlog.ErrFenced) {
		t.Errorf("the newest fence: %v; want ErrFenced", err)
	}
	if err := f.check([]eventlog.Epoch{{GroupPartition: at, Number: 7}}); err != nil {
		t.Errorf("the epoch itself: %v", err)
	}
}

func TestProgressDocument(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seq := rapid.Uint64Range(0, 1<<63-1)
		var p eventlog.Progress
		p.Cursor = seq.Draw(t, "cursor")
		for range rapid.IntRange(0, 4).Draw(t, "settled") {
			p.Settled = append(p.Settled, eventlog.SeqRange{First: seq.Draw(t, "first"), Last: seq.Draw(t, "last")})
		}
		for range rapid.IntRange(0, 4).Draw(t, "attempts") {
			r := eventlog.SeqRange{First: seq.Draw(t, "first"), Last: seq.Draw(t, "last")}
			p.Attempts = append(p.Attempts, eventlog.AttemptRange{SeqRange: r, Attempts: rapid.IntRange(1, 1<<20).Draw(t, "n")})
		}
		for range rapid.IntRange(0, 4).Draw(t, "delays") {
			p.Delays = append(p.Delays, eventlog.Delay{Seq: seq.Draw(t, "seq"), Until: rapid.Int64().Draw(t, "until"), Left: rapid.Int64().Draw(t,
				"left")})
		}
		for range rapid.IntRange(0, 2).Draw(t, "redrives") {
			p.Redrives = append(p.Redrives, eventlog.RedriveProgress{Seq: seq.Draw(t, "seq"), Until: rapid.Int64().Draw(t, "until"),
				Left: rapid.Int64().Draw(t, "left")})
		}
		raw, err := bson.Marshal(newProgressDoc(&p))
		require.NoError(t, err)
		var d progressDoc
		require.NoError(t, bson.Unmarshal(raw, &d))
		if got := d.decode(); !reflect.DeepEqual(got, p) {
			t.Errorf("%+v became %+v", p, got)
		}
	})
}

// TestDocumentIDs: two epochs or marks that differ in any part have different ids, though groups
// and event ids may hold any character.
func TestDocumentIDs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		topic := rapid.StringMatching(`[ab.]{1,3}`)
		text := rapid.StringMatching(`[a/%01]{1,5}`)
		number := rapid.Uint64Range(1, 12)
		type whole struct {
			topic, group, id string
			partition        int
			number           uint64
		}
		draw := func(name string) whole {
			return whole{topic.Draw(t, name), text.Draw(t, name), text.Draw(t, name), rapid.IntRange(0, 11).Draw(t, name), number.Draw(t, name)}
		}
		a, b := draw("a"), draw("b")
		ids := func(w whole) (string, string) {
			e := eventlog.Epoch{Number: w.number}
			e.Topic, e.Group, e.Partition = w.topic, w.group, w.partition
			return epochID(&e), markID(w.topic, 0, w.group, w.id)
		}
		epochA, markA := ids(a)
		epochB, markB := ids(b)
		same := a.topic == b.topic && a.group == b.group
		if (epochA == epochB) != (same && a.partition == b.partition && a.number == b.number) {
			t.Errorf("%+v and %+v have epoch ids %q and %q", a, b, epochA, epochB)
		}
		if (markA == markB) != (same && a.id == b.id) {
			t.Errorf("%+v and %+v have mark ids %q and %q", a, b, markA, markB)
		}
	})
}

// TestManyEpochs uses more epochs than one query takes.
func TestManyEpochs(t *testing.T) {
	open := sharedStore(t)
	l := open()
	var epochs []eventlog.Epoch
	for i := range core.MaxBranches + 5 {
		e := anEpoch(0, 1, "n")
		e.Group = fmt.Sprintf("g%03d", i)
		epochs = append(epochs, e)
	}
	require.NoError(t, errors.Join(l.TakeEpochs(t.Context(), epochs)...))
	for i, err := range l.TakeEpochs(t.Context(), epochs) {
		if !errors.Is(err, eventlog.ErrEpochTaken) {
			t.Errorf("epoch %d again: %v", i, err)
		}
	}
	if err := l.SaveEpochs(t.Context(), epochs, nil); err != nil {
		t.Error(err)
	}
	groups, err := l.ListGroups(t.Context(), "orders")
	if err != nil || len(groups) != len(epochs) || groups[0] != "g000" || groups[104] != "g104" {
		t.Errorf("ListGroups = %q, %v", groups, err)
	}
}
