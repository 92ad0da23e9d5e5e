package usage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/controlplane/internal/store"
	"github.com/sluice-bus/sluice/test/require"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is a store that may be away.
type memory struct {
	mu   sync.Mutex
	away bool
	docs map[string]store.UsageDoc
}

var errAway = errors.New("away")

func (m *memory) PutUsage(_ context.Context, d store.UsageDoc) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.away {
		return errAway
	}
	m.docs[d.Key()] = d
	return nil
}

func (m *memory) UsageBetween(_ context.Context, from, to string) (docs []store.UsageDoc, _ error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, d := range m.docs {
		if from <= d.Day && d.Day <= to {
			docs = append(docs, d)
		}
	}
	return docs, nil
}

func (m *memory) ForgetUsage(_ context.Context, day string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, d := range m.docs {
		if d.Day < day {
			delete(m.docs, key)
		}
	}
	return nil
}

var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

// Whatever is counted at whichever control plane, and however often they are saved, fail to save and start anew, is there once
// they have saved.
func TestNothingCountedIsLostOrCountedTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, want := &memory{docs: map[string]store.UsageDoc{}}, map[Name]int64{}
		books, lives := [2]*Book{}, 0
		start := func(i int) {
			lives++
			books[i] = New(m, fmt.Sprint("life ", lives), slog.New(slog.DiscardHandler))
		}
		start(0)
		start(1)
		for range rapid.IntRange(0, 40).Draw(t, "steps") {
			i := rapid.IntRange(0, 1).Draw(t, "book")
			switch rapid.SampledFrom([]string{"count", "count", "save", "start", "store"}).Draw(t, "step") {
			case "count":
				name := Name{rapid.SampledFrom([]string{"a", "b"}).Draw(t, "topic"), rapid.SampledFrom([]string{"", "x"}).Draw(t, "tenant")}
				day := noon.AddDate(0, 0, rapid.IntRange(0, 2).Draw(t, "day"))
				if name.Tenant != "" {
					books[i].Count(name.Topic, name.Tenant, 3, 1, day)
				} else {
					books[i].Count(name.Topic, "", 3, 0, day)
					books[i].Refuse(name.Topic, rapid.SampledFrom([]string{"rate_limited", "conflict"}).Draw(t, "code"), 1, day)
				}
				want[name] += 3
			case "save":
				_ = books[i].save(t.Context())
			case "start": // after it has saved
				if books[i].save(t.Context()) == nil {
					start(i)
				}
			case "store":
				m.away = !m.away
			}
		}
		m.away = false
		reader := 1
		require.NoError(t, books[0].save(t.Context()))
		rows, err := books[reader].Between(t.Context(), "2026-01-31", "2026-02-02", "", true)
		require.NoError(t, err)
		if len(rows) != len(want) || !slices.IsSortedFunc(rows, func(a, b Row) int { return a.Compare(b.Name) }) {
			t.Fatalf("got %+v, want %v", rows, want)
		}
		for _, r := range rows {
			byCode := r.Refusals["rate_limited"] + r.Refusals["conflict"]
			if r.Accepted != want[r.Name] || r.Refused*3 != r.Accepted || r.Tenant == "" && byCode != r.Refused {
				t.Fatalf("got %+v, want %v", rows, want)
			}
		}
	})
}

func TestUsageIsSelected(t *testing.T) {
	b := New(&memory{}, "w", slog.New(slog.DiscardHandler))
	b.Count("orders", "acme", 2, 0, noon)
	b.Count("orders", "", 5, 0, noon)
	b.Refuse("orders", "rate_limited", 1, noon)
	b.Count("payments", "", 7, 0, noon.AddDate(0, 0, 1))
	for _, c := range []struct {
		from, to, prefix string
		tenants          bool
		want             string
	}{
		{"2026-01-31", "2026-01-31", "", false, "[{{orders } 5 1 map[rate_limited:1]}]"},
		{"2026-01-31", "2026-02-01", "", true, "[{{orders } 5 1 map[rate_limited:1]} {{orders acme} 2 0 map[]} {{payments } 7 0 map[]}]"},
		{"2026-01-01", "2026-12-31", "pay", true, "[{{payments } 7 0 map[]}]"},
		{"2026-02-02", "2026-12-31", "", true, "[]"},
	} {
		rows, err := b.Between(t.Context(), c.from, c.to, c.prefix, c.tenants)
		if got := fmt.Sprint(rows); err != nil || got != c.want {
			t.Errorf("%+v: %s, %v", c, got, err)
		}
	}
}

func TestADayHasABound(t *testing.T) {
	b := New(&memory{}, "w", slog.New(slog.DiscardHandler))
	for i := range MaxRows + 5 {
		b.Count(fmt.Sprint(i), "", 1, 0, noon)
	}
	b.Count("0", "a tenant more", 1, 0, noon)
	b.Count("0", "", 1, 0, noon)
	rows, err := b.Between(t.Context(), "2026-01-31", "2026-01-31", "", true)
	require.NoError(t, err)
	other := rows[slices.IndexFunc(rows, func(r Row) bool { return r.Topic == Other })]
	if len(rows) != MaxRows+1 || other.Accepted != 5 || rows[0].Accepted != 2 {
		t.Errorf("%d rows, %+v, %+v", len(rows), other, rows[0])
	}
}

// Run saves every minute and at the end, and forgets what is too old.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		today := time.Now().UTC()
		old := today.AddDate(0, 0, -KeepDays-1).Format(time.DateOnly)
		m := &memory{docs: map[string]store.UsageDoc{old: {Day: old}}}
		b := New(m, "w", slog.New(slog.DiscardHandler))
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- b.Run(ctx) }()
		b.Count("orders", "", 1, 0, today)
		time.Sleep(saveEvery + time.Second)
		m.mu.Lock()
		if len(m.docs) != 1 || m.docs[today.Format(time.DateOnly)+"\nw"].Number != 1 {
			t.Errorf("after a minute: %v", m.docs)
		}
		m.mu.Unlock()
		time.Sleep(saveEvery)
		b.Count("orders", "", 1, 0, today)
		stop()
		if err := <-ended; err != nil || m.docs[today.Format(time.DateOnly)+"\nw"].Number != 2 {
			t.Errorf("at the end: %v, %v", err, m.docs)
		}
	})
}
