package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/option"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/sluicetest"
)

// When the time of a batch is over, each event's error has the event's id. Publishing these events
// again in order keeps the order of the key.
func TestABatchGivesUpFromTheBack(t *testing.T) {
	const events = 400
	_, client := open(t, sluicetest.Options{Refuse: func(*wire.Event) *wire.Error { return nil }})
	for round := range 10 {
		seqs := make([]uint64, events)
		var left []sluice.Event
		var index []int
		for i := range events {
			left, index = append(left, sluice.Event{Topic: "orders", Key: fmt.Sprint(round), Payload: fmt.Append(nil, i)}), append(index, i)
		}
		for rounds := 1; len(left) > 0; rounds++ {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rounds)*200*time.Microsecond)
			results, err := client.PublishBatch(ctx, left)
			cancel()
			var again []sluice.Event
			var indexes []int
			for i, r := range results {
				if r.Err == nil {
					seqs[index[i]] = r.Receipt.Seq
					continue
				}
				var failed *sluice.PublishError
				if err == nil || !errors.As(r.Err, &failed) || failed.ID == "" || failed.Topic != "orders" ||
					!errors.Is(r.Err, context.DeadlineExceeded) {
					t.Fatalf("%v of %v", r.Err, err)
				}
				e := left[i]
				e.ID = failed.ID
				again, indexes = append(again, e), append(indexes, index[i])
			}
			left, index = again, indexes
		}
		if !slices.IsSorted(seqs) || len(slices.Compact(seqs)) != events {
			t.Errorf("the events have the seqs %v", seqs)
		}
	}
}

// With StopKeyOnError a refused event fails the later events of its key, and no others. Results
// come in the key's order.
func TestStopKeyOnError(t *testing.T) {
	for _, stop := range []bool{false, true} {
		handedOver := make(chan struct{})
		_, client := open(t, sluicetest.Options{Refuse: func(e *wire.Event) *wire.Error {
			<-handedOver
			if e.ID == "a-2" {
				return wire.Errorf(wire.SchemaViolation, "no")
			}
			return nil
		}})
		var opts []option.Publish
		if stop {
			opts = append(opts, option.StopKeyOnError())
		}
		publisher := client.NewPublisher(opts...)
		var mu sync.Mutex
		var got []string
		for _, id := range []string{"a-1", "b-1", "a-2", "a-3", "a-4", "b-2"} {
			e := sluice.Event{ID: id, Topic: "orders", Key: id[:1], Payload: []byte("1")}
			require.NoError(t, publisher.Publish(t.Context(), &e, func(_ sluice.Receipt, err error) {
				mu.Lock()
				defer mu.Unlock()
				var failed *sluice.PublishError
				switch {
				case err == nil:
					got = append(got, id+" ok")
				case !errors.As(err, &failed) || failed.ID != id:
					t.Errorf("%s: %v", id, err)
				case errors.Is(err, sluice.ErrKeyStopped):
					got = append(got, id+" stopped")
				case errors.Is(err, &wire.Error{Code: wire.SchemaViolation}):
					got = append(got, id+" refused")
				}
			}))
		}
		close(handedOver)
		require.NoError(t, publisher.Flush(t.Context()))
		var ofA, ofB []string
		for _, g := range got {
			if g[0] == 'a' {
				ofA = append(ofA, g)
			} else {
				ofB = append(ofB, g)
			}
		}
		want := []string{"a-1 ok", "a-2 refused", "a-3 ok", "a-4 ok"}
		if stop {
			want = []string{"a-1 ok", "a-2 refused", "a-3 stopped", "a-4 stopped"}
		}
		if !slices.Equal(ofA, want) || !slices.Equal(ofB, []string{"b-1 ok", "b-2 ok"}) {
			t.Errorf("stopping: %v: %v, %v; want %v", stop, ofA, ofB, want)
		}
		publisher.Close()
	}
}
