package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/snapshot"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/sluicetest"
)

const snapshotTopic = "payments"

// totals are how many events each key has, and the last seq of each partition.
type totals struct {
	Events map[string]int `json:"events"`
	Last   map[int]uint64 `json:"last"`
}

func count(_ context.Context, s *totals, e *sluice.Event) error {
	if s.Events == nil {
		*s = totals{map[string]int{}, map[int]uint64{}}
	}
	if e.Seq != s.Last[e.Partition]+1 { // nothing is compacted here
		return fmt.Errorf("seq %d of partition %d came after %d", e.Seq, e.Partition, s.Last[e.Partition])
	}
	s.Last[e.Partition] = e.Seq
	s.Events[e.Key]++
	return nil
}

func publishKey(t rapid.TB, client *sluice.Client, key string) {
	t.Helper()
	if _, err := client.HTTP().Publish(context.Background(), &sluice.Event{Topic: snapshotTopic, Key: key, Payload: []byte("1")}); err != nil {
		t.Fatal(err)
	}
}

// wholeSnapshots are the files that can be read, the last one at the end.
func wholeSnapshots(t rapid.TB, dir string) (good []string) {
	names, err := filepath.Glob(filepath.Join(dir, "*.snapshot"))
	for _, name := range names {
		var b []byte
		if b, err = os.ReadFile(name); err != nil {
			break
		}
		if _, torn := snapshot.Decode(b); torn == nil {
			good = append(good, name)
		}
	}
	require.NoError(t, err)
	return good
}

// Wherever a consumer is killed, whichever connections break, and even if its last snapshot is
// torn, its state has each event once.
func TestConsumerProperty(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		sidecar := sluicetest.Start(sluicetest.Options{
			Policies: "- name: \"*\"\n  connection: {rate: 0}\n  publish: {rate: 0}\n  partitions: 3\n"})
		defer sidecar.Close()
		dir, err := os.MkdirTemp("", "snapshot")
		require.NoError(rt, err)
		defer os.RemoveAll(dir)
		store := &snapshot.File{Dir: dir, Name: "totals", Logger: quiet}
		publisher := dialQuiet(rt, sidecar)
		defer publisher.Close()
		var client *sluice.Client
		var c *snapshot.Consumer[totals]
		within := func(do func(ctx context.Context) error) {
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			require.NoError(rt, do(ctx))
		}
		start := func() {
			client = dialQuiet(rt, sidecar)
			within(func(ctx context.Context) (err error) {
				c, err = snapshot.Follow(ctx, client, snapshotTopic, store, snapshot.Options[totals]{Apply: count, Every: time.Millisecond,
					Logger: quiet})
				return err
			})
		}
		want := map[string]int{}
		key := rapid.SampledFrom([]string{"", "a", "b", "c", "d"})
		publishOne := func(rt *rapid.T) {
			k := key.Draw(rt, "key")
			publishKey(rt, publisher, k)
			want[k]++
		}
		publishOne(rt)
		start()
		defer func() { _ = client.Close(); <-c.Done() }()
		again := func() {
			sidecar.SetDown(false)
			start()
		}
		rt.Repeat(map[string]func(*rapid.T){
			"publish":       publishOne,
			"publish again": publishOne,
			"disconnect":    func(*rapid.T) { sidecar.Disconnect() },
			"down":          func(*rapid.T) { sidecar.SetDown(true) },
			"up":            func(*rapid.T) { sidecar.SetDown(false) },
			"save":          func(*rapid.T) { within(c.Save) },
			"kill":          func(*rapid.T) { _ = client.Close(); <-c.Done(); again() }, // nothing more is saved
			"restart":       func(*rapid.T) { within(c.Close); _ = client.Close(); again() },
			"tear": func(rt *rapid.T) {
				_ = client.Close()
				<-c.Done()
				if good := wholeSnapshots(rt, dir); len(good) > 1 {
					require.NoError(rt, os.Truncate(good[len(good)-1], int64(rapid.IntRange(0, 60).Draw(rt, "bytes"))))
				}
				again()
			},
		})
		sidecar.SetDown(false)
		within(c.Current)
		c.View(func(s *totals) {
			if !maps.Equal(s.Events, want) {
				rt.Errorf("the state is %v; want %v", s.Events, want)
			}
		})
	})
}

// A snapshot behind which events are gone is refused, and the error says what to do; with Rebuild
// the consumer starts without it. The same holds for a snapshot that is too old, and for a consumer
// that has lost events while it had no connection.
func TestTooOld(t *testing.T) {
	sidecar, client := startQuiet(t)
	store := &snapshot.File{Dir: t.TempDir(), Name: "totals", Logger: quiet}
	sum := func(_ context.Context, s *int, _ *sluice.Event) error { *s++; return nil }
	follow := func(opts snapshot.Options[int]) (*snapshot.Consumer[int], error) {
		opts.Apply, opts.Logger = sum, quiet
		return snapshot.Follow(t.Context(), client, snapshotTopic, store, opts)
	}
	is := func(c *snapshot.Consumer[int], want int) {
		t.Helper()
		require.NoError(t, c.Current(t.Context()))
		c.View(func(got *int) {
			if *got != want {
				t.Errorf("the state is %d; want %d", *got, want)
			}
		})
	}
	publishKey(t, client, "a")
	c, err := follow(snapshot.Options[int]{})
	require.NoError(t, err)
	is(c, 1)
	require.NoError(t, c.Close(t.Context()))
	if _, err := follow(snapshot.Options[int]{MaxAge: time.Nanosecond}); !errors.Is(err, snapshot.ErrTooOld) ||
		!strings.Contains(err.Error(), "MaxAge") {
		t.Errorf("past MaxAge: %v", err)
	}
	lose := func() {
		t.Helper()
		publishKey(t, client, "gone")
		for {
			err := client.HTTP().DeleteTopic(t.Context(), snapshotTopic)
			if err == nil {
				break
			}
			if !errors.Is(err, &wire.Error{Code: wire.InUse}) { // until the sidecar has noticed
				t.Fatal(err)
			}
		}
		publishKey(t, client, "b")
		publishKey(t, client, "b")
	}
	lose()
	if _, err = follow(snapshot.Options[int]{}); !errors.Is(err, snapshot.ErrTooOld) ||
		!errors.Is(err, &wire.Error{Code: wire.OutOfRange}) || !strings.Contains(err.Error(), "Rebuild") {
		t.Fatalf("behind a gap: %v", err)
	}
	if c, err = follow(snapshot.Options[int]{Rebuild: true}); err != nil {
		t.Fatal(err)
	}
	is(c, 2)
	sidecar.SetDown(true)
	lose()
	sidecar.SetDown(false)
	<-c.Done()
	if err := c.Err(); !errors.Is(err, snapshot.ErrTooOld) {
		t.Errorf("after a gap: %v", err)
	}
	if err := c.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// After an error of Apply the consumer saves nothing: the state may be half changed.
func TestApplyFails(t *testing.T) {
	_, client := startQuiet(t)
	store := &snapshot.File{Dir: t.TempDir(), Name: "totals", Logger: quiet}
	bad := errors.New("cannot be")
	c, err := snapshot.Follow(t.Context(), client, snapshotTopic, store, snapshot.Options[int]{Logger: quiet, Apply: func(_ context.Context,
		s *int, e *sluice.Event) error {
		*s++
		if e.Key == "bad" {
			return bad
		}
		return nil
	}})
	require.NoError(t, err)
	publishKey(t, client, "good")
	require.NoError(t, errors.Join(c.Current(t.Context()), c.Save(t.Context())))
	publishKey(t, client, "bad")
	publishKey(t, client, "good")
	<-c.Done()
	if err := errors.Join(c.Save(t.Context()), c.Close(t.Context())); err != nil || !errors.Is(c.Err(), bad) {
		t.Errorf("it ended with %v, and closed with %v", c.Err(), err)
	}
	if s, err := store.Load(t.Context()); err != nil || string(s.State) != "1" || !maps.Equal(s.Positions, map[int]uint64{0: 1}) {
		t.Errorf("saved is %s at %v, %v", s.State, s.Positions, err)
	}
	if _, err := snapshot.Follow(t.Context(), client, snapshotTopic, store, snapshot.Options[int]{}); !errors.Is(err, sluice.ErrNil) {
		t.Errorf("without Apply: %v", err)
	}
}

// An event has come and is not applied yet when the connection is made again. The consumer does not
// take it for an applied one.
func TestCurrentAfterANewConnection(t *testing.T) {
	sidecar, publisher := startQuiet(t)
	back := make(chan struct{}, 100)
	client, err := sluice.Dial(t.Context(), sidecar.URL, sluice.WithLogger(quiet), sluice.WithBackoff(time.Millisecond, 5*time.Millisecond),
		sluice.WithConnectionHook(func(c sluice.ConnectionChange) {
			if c.Topic == snapshotTopic && c.Err == nil {
				back <- struct{}{}
			}
		}))
	require.NoError(t, err)
	defer client.Close()
	publishKey(t, publisher, "a")
	applying, apply := make(chan struct{}), make(chan struct{})
	store := &snapshot.File{Dir: t.TempDir(), Name: "totals", Logger: quiet}
	c, err := snapshot.Follow(t.Context(), client, snapshotTopic, store, snapshot.Options[int]{Logger: quiet, Apply: func(_ context.Context,
		s *int, _ *sluice.Event) error {
		close(applying)
		<-apply
		*s++
		return nil
	}})
	require.NoError(t, err)
	<-applying
	sidecar.Disconnect()
	<-back
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := c.Current(ctx); err == nil {
		t.Error("it is current before the event is applied")
	}
	close(apply)
	if err := errors.Join(c.Current(t.Context()), c.Close(t.Context())); err != nil {
		t.Error(err)
	}
	if s, err := store.Load(t.Context()); err != nil || string(s.State) != "1" {
		t.Errorf("saved is %s, %v", s.State, err)
	}
}

// Close waits for the event that is being applied, which is in the snapshot then. If it cannot wait
// any longer it saves nothing of that event.
func TestCloseWaitsForApply(t *testing.T) {
	_, client := startQuiet(t)
	publishKey(t, client, "a")
	for patient, saved := range map[bool]string{true: "1", false: ""} {
		store := &snapshot.File{Dir: t.TempDir(), Name: "totals", Logger: quiet}
		applying, apply := make(chan struct{}), make(chan struct{})
		c, err := snapshot.Follow(t.Context(), client, snapshotTopic, store, snapshot.Options[int]{Logger: quiet,
			Apply: func(ctx context.Context, s *int, _ *sluice.Event) error {
				close(applying)
				select {
				case <-apply:
					*s++
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			}})
		require.NoError(t, err)
		<-applying
		ctx, cancel := context.WithCancel(t.Context())
		if patient {
			time.AfterFunc(10*time.Millisecond, func() { close(apply) })
		} else {
			cancel()
		}
		if err := c.Close(ctx); err != nil {
			t.Error(err)
		}
		cancel()
		if s, err := store.Load(t.Context()); string(s.State) != saved || errors.Is(err, snapshot.ErrNone) == patient {
			t.Errorf("patient %v: saved is %s, %v", patient, s.State, err)
		}
	}
}

// The snapshot names the partitions without events, so that the consumer notices an event that
// comes there and is removed again.
func TestPartitionsWithoutEvents(t *testing.T) {
	sidecar := sluicetest.Start(sluicetest.Options{Policies: "- name: \"*\"\n  partitions: 2\n"})
	defer sidecar.Close()
	client := dialQuiet(t, sidecar)
	defer client.Close()
	publishKey(t, client, "a")
	store := &snapshot.File{Dir: t.TempDir(), Name: "totals", Logger: quiet}
	c, err := snapshot.Follow(t.Context(), client, snapshotTopic, store, snapshot.Options[totals]{Logger: quiet, Apply: count})
	require.NoError(t, err)
	require.NoError(t, errors.Join(c.Current(t.Context()), c.Close(t.Context())))
	if s, err := store.Load(t.Context()); err != nil || len(s.Positions) != 2 || s.Positions[0]+s.Positions[1] != 1 {
		t.Errorf("%v, %v", s.Positions, err)
	}
}
