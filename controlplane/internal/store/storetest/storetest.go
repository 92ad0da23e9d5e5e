// Package storetest is the test suite of all policy stores.
package storetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/controlplane/internal/store"
)

// Place has the commits of one test.
type Place struct {
	// Open opens a handle, which the suite closes.
	Open func(t *testing.T) store.Backend
	// Handles is how many may be open at once.
	Handles int
}

// patience bounds the waits of the tests.
const patience = 30 * time.Second

// Run runs the suite; empty makes a place without commits.
func Run(t *testing.T, empty func(t *testing.T) Place) {
	for name, test := range map[string]func(*testing.T, Place){
		"Order":      testOrder,
		"Refusals":   testRefusals,
		"Large":      testLarge,
		"Pages":      testPages,
		"Appenders":  testAppenders,
		"Await":      testAwait,
		"Forget":     testForget,
		"Reopen":     testReopen,
		"Closed":     testClosed,
		"Roster":     testRoster,
		"Secrets":    testSecrets,
		"Usage":      testUsage,
		"OutOfRange": testOutOfRange,
	} {
		t.Run(name, func(t *testing.T) { test(t, empty(t)) })
	}
}

// open opens a handle that is closed with the test.
func (p Place) open(t *testing.T) store.Backend {
	t.Helper()
	s := p.Open(t)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

// Commit is one of a revision with everything in it.
func Commit(revision int64) store.Commit {
	return store.Commit{
		Revision: revision, At: time.UnixMilli(1_700_000_000_000 + revision).UTC(), By: "alice é", Reason: "since it was too much",
		Token: fmt.Sprint("token ", revision), Series: revision / 2,
		Changes: []store.Change{
			{Name: "orders.*", Version: revision, Action: store.Updated,
				Policy: json.RawMessage(`{"name":"orders.*","schema":{"json_schema":{"$ref":"#/a.b","":[1e400,"é\u003c"]}}}`), Schema: 3},
			{Name: "*", Version: 2, Action: store.RolledBack, Policy: json.RawMessage(`{"name":"*"}`), To: 1},
			{Name: "gone", Version: 7, Action: store.Deleted},
		},
	}
}

func mustAppend(t *testing.T, s store.Store, c store.Commit) {
	t.Helper()
	if err := s.Append(t.Context(), c); err != nil {
		t.Fatalf("Append %d: %v", c.Revision, err)
	}
}

// All returns all commits after a revision, page by page.
func All(ctx context.Context, s store.Store, revision int64) ([]store.Commit, error) {
	var all []store.Commit
	for {
		page, err := s.After(ctx, revision)
		if err != nil || len(page) == 0 {
			return all, err
		}
		all = append(all, page...)
		revision = page[len(page)-1].Revision
	}
}

func mustAll(t *testing.T, s store.Store, revision int64) []store.Commit {
	t.Helper()
	all, err := All(t.Context(), s, revision)
	if err != nil {
		t.Fatalf("After: %v", err)
	}
	return all
}

func testOrder(t *testing.T, p Place) {
	s := p.open(t)
	if all := mustAll(t, s, 0); len(all) != 0 {
		t.Fatalf("an empty store has %d commits", len(all))
	}
	const count = 12
	for r := int64(1); r <= count; r++ {
		mustAppend(t, s, Commit(r))
	}
	for after := int64(0); after <= count+1; after++ {
		all := mustAll(t, s, after)
		if want := max(count-after, 0); int64(len(all)) != want {
			t.Fatalf("%d commits after %d, want %d", len(all), after, want)
		}
		for i, c := range all {
			if want := Commit(after + int64(i) + 1); !reflect.DeepEqual(c, want) {
				t.Fatalf("got  %+v\nwant %+v", c, want)
			}
		}
	}
	for r := int64(0); r <= count+1; r++ {
		c, err := s.At(t.Context(), r)
		if there := 1 <= r && r <= count; there && (err != nil || !reflect.DeepEqual(c, Commit(r))) || !there && !errors.Is(err, store.ErrNone) {
			t.Errorf("commit %d: %+v, %v", r, c, err)
		}
	}
	if err := s.Ping(t.Context()); err != nil {
		t.Errorf("Ping: %v", err)
	}
}

func testRefusals(t *testing.T, p Place) {
	s := p.open(t)
	for _, revision := range []int64{0, -1, 2} {
		err := s.Append(t.Context(), Commit(revision))
		if err == nil || errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrUnavailable) {
			t.Errorf("Append %d to nothing: %v", revision, err)
		}
	}
	mustAppend(t, s, Commit(1))
	mustAppend(t, s, Commit(2))
	mustAppend(t, s, Commit(2)) // again, as after a lost answer
	mustAppend(t, s, Commit(1))
	if err := s.Append(t.Context(), Commit(9)); err == nil || errors.Is(err, store.ErrConflict) {
		t.Errorf("Append 9 after 2: %v", err)
	}
	for _, token := range []string{"another", ""} {
		c := Commit(2)
		c.Token = token
		if err := s.Append(t.Context(), c); !errors.Is(err, store.ErrConflict) {
			t.Errorf("another commit 2 with token %q: %v", token, err)
		}
	}
	nameless := Commit(3)
	nameless.Token = ""
	mustAppend(t, s, nameless)
	if err := s.Append(t.Context(), nameless); !errors.Is(err, store.ErrConflict) {
		t.Errorf("again, without a token to know it by: %v", err)
	}
	if all := mustAll(t, s, 0); len(all) != 3 || all[1].Token != Commit(2).Token {
		t.Errorf("got %+v", all)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, afterErr := s.After(ended, 0)
	for _, err := range []error{afterErr, s.Append(ended, Commit(4)), s.Await(ended, 3), s.Await(ended, 0)} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("with a context that is over: %v", err)
		}
	}
}

// Ten thousand policies that set every field fit. A commit that is too large for any store is
// refused, and nothing of it is stored.
func testLarge(t *testing.T, p Place) {
	s := p.open(t)
	text := json.RawMessage(`{"name":"` + strings.Repeat("a", 800) + `"}`)
	c := Commit(1)
	c.Changes = make([]store.Change, 10_000)
	for i := range c.Changes {
		c.Changes[i] = store.Change{Name: fmt.Sprint("topic", i), Version: 1, Action: store.Seeded, Policy: text}
	}
	mustAppend(t, s, c)
	large := Commit(2)
	large.Changes[0].Policy = json.RawMessage(`"` + strings.Repeat("a", store.MaxCommitBytes) + `"`)
	if err := s.Append(t.Context(), large); !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("a commit that is too large: %v", err)
	}
	if all := mustAll(t, s, 0); len(all) != 1 || !reflect.DeepEqual(all[0], c) {
		t.Errorf("%d commits, the first with %d changes", len(all), len(all[0].Changes))
	}
}

func testPages(t *testing.T, p Place) {
	s := p.open(t)
	text := json.RawMessage(`"` + strings.Repeat("a", store.PageBytes/4) + `"`)
	const count = 11
	for r := int64(1); r <= count; r++ {
		c := Commit(r)
		c.Changes[0].Policy = text
		mustAppend(t, s, c)
	}
	first, err := s.After(t.Context(), 0)
	if err != nil || len(first) == 0 || len(first) == count {
		t.Errorf("the first page has %d commits, %v", len(first), err)
	}
	all := mustAll(t, s, 0)
	for i, c := range all {
		if c.Revision != int64(i+1) || !bytes.Equal(c.Changes[0].Policy, text) {
			t.Fatalf("commit %d is at place %d", c.Revision, i)
		}
	}
	if len(all) != count {
		t.Errorf("%d commits, want %d", len(all), count)
	}
}

// Of several appenders one gets a revision, and every commit that was acknowledged is there once.
func testAppenders(t *testing.T, p Place) {
	const appenders, each = 4, 6
	handles := make([]store.Backend, min(p.Handles, 2))
	for i := range handles {
		handles[i] = p.open(t)
	}
	var mu sync.Mutex
	acked := map[string]int64{}
	conflicts := 0
	var work sync.WaitGroup
	for i, s := range handles {
		for a := range appenders {
			work.Go(func() {
				for n := range each {
					token := fmt.Sprintf("%d/%d/%d", i, a, n)
					revision, lost, err := appendSomewhere(t.Context(), s, token)
					if err != nil {
						t.Errorf("%s: %v", token, err)
						return
					}
					mu.Lock()
					acked[token] = revision
					conflicts += lost
					mu.Unlock()
				}
			})
		}
	}
	work.Wait()
	all := mustAll(t, handles[0], 0)
	if want := len(handles) * appenders * each; len(all) != want || len(acked) != want {
		t.Fatalf("%d commits of which %d were acknowledged, want %d", len(all), len(acked), want)
	}
	for i, c := range all {
		if c.Revision != int64(i+1) || acked[c.Token] != c.Revision {
			t.Errorf("place %d has commit %d of %s, acknowledged as %d", i, c.Revision, c.Token, acked[c.Token])
		}
	}
	t.Logf("%d commits, %d conflicts", len(all), conflicts)
}

// appendSomewhere appends a commit after the last one.
func appendSomewhere(ctx context.Context, s store.Store, token string) (revision int64, conflicts int, _ error) {
	for {
		later, err := All(ctx, s, revision)
		if err != nil {
			return 0, 0, err
		}
		c := Commit(revision + int64(len(later)) + 1)
		c.Token = token
		err = s.Append(ctx, c)
		if !errors.Is(err, store.ErrConflict) {
			return c.Revision, conflicts, err
		}
		conflicts++
		revision = c.Revision - 1
	}
}

// A forgotten policy's change keeps its place, author and time, and other changes stay.
func testForget(t *testing.T, p Place) {
	s := p.open(t)
	for r := int64(1); r <= 3; r++ {
		mustAppend(t, s, Commit(r))
	}
	for range 2 {
		if err := s.Forget(t.Context(), map[int64][]string{1: {"orders.*", "*", "gone"}, 2: {"*", "nobody"}}); err != nil {
			t.Fatal(err)
		}
	}
	one, two := Commit(1), Commit(2)
	for _, ch := range []*store.Change{&one.Changes[0], &one.Changes[1], &two.Changes[1]} {
		ch.Policy, ch.Forgotten = nil, true
	}
	if all, want := mustAll(t, s, 0), []store.Commit{one, two, Commit(3)}; !reflect.DeepEqual(all, want) {
		t.Errorf("got  %+v\nwant %+v", all, want)
	}
	if err := s.Append(t.Context(), Commit(1)); err != nil { // as after a lost answer
		t.Errorf("a commit that is there: %v", err)
	}
}

// A waiting call returns within a second after any append; on a busy machine one of a few tries
// must do so.
func testAwait(t *testing.T, p Place) {
	s := p.open(t)
	waiters := []store.Backend{s}
	for len(waiters) < min(p.Handles, 2) {
		waiters = append(waiters, p.open(t))
	}
	quickest := patience
	for r := int64(1); r <= 3; r++ {
		woken := make(chan error, len(waiters))
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		for _, w := range waiters {
			go func() { woken <- w.Await(ctx, r-1) }()
		}
		mustAppend(t, s, Commit(r))
		began := time.Now()
		for range waiters {
			if err := <-woken; err != nil {
				t.Errorf("Await %d: %v", r-1, err)
			}
		}
		quickest = min(quickest, time.Since(began))
		cancel()
	}
	if quickest > time.Second {
		t.Errorf("Await returned after %v", quickest)
	}
	if err := s.Await(t.Context(), 0); err != nil { // at once
		t.Errorf("Await of what is there: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := s.Await(ctx, 3); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Await of what does not come: %v", err)
	}
}

func testReopen(t *testing.T, p Place) {
	for r := int64(1); r <= 3; r++ {
		s := p.Open(t)
		mustAppend(t, s, Commit(r))
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	all := mustAll(t, p.open(t), 0)
	if len(all) != 3 || !reflect.DeepEqual(all[2], Commit(3)) {
		t.Errorf("got %+v", all)
	}
}

func testClosed(t *testing.T, p Place) {
	s := p.Open(t)
	woken := make(chan error, 1)
	go func() { woken <- s.Await(t.Context(), 0) }()
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	_, afterErr := s.After(t.Context(), 0)
	for i, err := range []error{<-woken, afterErr, s.Append(t.Context(), Commit(1)), s.Await(t.Context(), 0), s.Ping(t.Context())} {
		if !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%d: after Close: %v", i, err)
		}
	}
}

// A store has no commits far behind its end.
func testOutOfRange(t *testing.T, p Place) {
	s := p.open(t)
	mustAppend(t, s, Commit(1))
	if all, err := s.After(t.Context(), 1<<60); err != nil || len(all) != 0 {
		t.Errorf("got %v, %v", all, err)
	}
}

func testRoster(t *testing.T, p Place) {
	s := p.Open(t)
	ctx := t.Context()
	check := func(what string, err error, want ...store.RosterEntry) {
		t.Helper()
		got, listing := s.Entered(ctx)
		if err != nil || listing != nil || !reflect.DeepEqual(got, want) && len(got)+len(want) > 0 {
			t.Errorf("%s: %v; entered are %q, %v; want %q", what, err, got, listing, want)
		}
	}
	entry := func(key, life, doc string) store.RosterEntry {
		return store.RosterEntry{Key: key, Life: life, Doc: []byte(doc)}
	}
	b1, b2 := entry("b\ns", "1", "first"), entry("b\ns", "2", "second")
	a := entry("a$.\n", "x", "\x00")
	check("empty", s.Leave(ctx, "nobody", ""))
	check("entered", s.Enter(ctx, b1), b1)
	check("another", s.Enter(ctx, a), a, b1)
	check("again, with another document", s.Enter(ctx, entry("b\ns", "1", "new")), a, entry("b\ns", "1", "new"))
	check("a later life", s.Enter(ctx, b2), a, b2)
	check("the earlier life leaves late", s.Leave(ctx, b2.Key, "1"), a)
	check("the later one is entered again", s.Enter(ctx, b2), a, b2)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = p.open(t)
	check("opened again", nil, a, b2)
	check("it leaves", s.Leave(ctx, b2.Key, "2"), a)
	check("it leaves twice", s.Leave(ctx, b2.Key, "2"), a)
	check("it is entered late", s.Enter(ctx, b2), a)
	b3 := entry("b\ns", "3", "third")
	check("it comes back", s.Enter(ctx, b3), a, b3)
	check("another is forgotten", s.Leave(ctx, a.Key, ""), b3)
	check("and comes back in the same life", s.Enter(ctx, a), a, b3)
	check("one leaves before it is entered", s.Leave(ctx, "c", "1"), a, b3)
	check("late", s.Enter(ctx, entry("c", "1", "")), a, b3)
}

// testSecrets: all callers get the same secret, also later ones.
func testSecrets(t *testing.T, p Place) {
	ctx := t.Context()
	all := make([][]byte, 8)
	var asking sync.WaitGroup
	for h := range p.Handles {
		s := p.open(t)
		for i := h; i < len(all); i += p.Handles {
			asking.Go(func() {
				var err error
				if all[i], err = s.Secret(ctx, "a", fmt.Append(nil, "fresh ", i)); err != nil {
					t.Error(err)
				}
			})
		}
		if h == p.Handles-1 {
			asking.Wait()
			if other, err := s.Secret(ctx, "b", []byte{0, 1}); err != nil || !bytes.Equal(other, []byte{0, 1}) {
				t.Errorf("another secret: %q, %v", other, err)
			}
			if again, err := s.Secret(ctx, "a", []byte("late")); err != nil || !bytes.Equal(again, all[0]) {
				t.Errorf("asked again: %q, %v", again, err)
			}
		}
	}
	for i, got := range all {
		if len(got) == 0 || !bytes.Equal(got, all[0]) {
			t.Errorf("%d has %q, and 0 %q", i, got, all[0])
		}
	}
}

// testUsage: each writer's day has its last document, also if an earlier one comes late.
func testUsage(t *testing.T, p Place) {
	s := p.open(t)
	put := func(day, writer string, number int64, doc string) {
		t.Helper()
		if err := s.PutUsage(t.Context(), store.UsageDoc{Day: day, Writer: writer, Number: number, Doc: []byte(doc)}); err != nil {
			t.Fatal(err)
		}
	}
	want := func(from, to string, docs ...string) {
		t.Helper()
		found, err := s.UsageBetween(t.Context(), from, to)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, d := range found {
			got = append(got, fmt.Sprintf("%s %s %d %s", d.Day, d.Writer, d.Number, d.Doc))
		}
		if !reflect.DeepEqual(got, docs) {
			t.Errorf("%s to %s: %q, want %q", from, to, got, docs)
		}
	}
	want("2026-01-01", "2026-12-31")
	put("2026-01-31", "cp/a", 1, "one")
	put("2026-01-31", "cp/a", 3, "three")
	put("2026-01-31", "cp/a", 2, "two")
	put("2026-01-31", "cp/b", 1, "b")
	put("2026-02-01", "cp/a", 4, "four")
	put("2026-01-30", "cp/a", 1, "first")
	want("2026-01-31", "2026-01-31", "2026-01-31 cp/a 3 three", "2026-01-31 cp/b 1 b")
	want("2026-01-30", "2026-02-01", "2026-01-30 cp/a 1 first", "2026-01-31 cp/a 3 three", "2026-01-31 cp/b 1 b", "2026-02-01 cp/a 4 four")
	if err := s.ForgetUsage(t.Context(), "2026-01-31"); err != nil {
		t.Fatal(err)
	}
	want("2026-01-01", "2026-01-31", "2026-01-31 cp/a 3 three", "2026-01-31 cp/b 1 b")
}
