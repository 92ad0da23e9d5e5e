package mongostore

import (
	"context"
	"errors"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-bus/sluice/controlplane/internal/store"
	"github.com/sluice-bus/sluice/controlplane/internal/store/storetest"
	"github.com/sluice-bus/sluice/test/mongotest"
	"github.com/sluice-bus/sluice/test/require"
)

// patience is enough for a slow test server.
const patience = 20 * time.Second

func TestSuite(t *testing.T) {
	server := mongotest.Shared(t)
	storetest.Run(t, func(t *testing.T) storetest.Place {
		url := server.URI(server.NewDatabase(t))
		return storetest.Place{Handles: 2, Open: func(t *testing.T) store.Backend { return open(t, url) }}
	})
}

func open(t *testing.T, url string) *Store {
	t.Helper()
	s, err := Open(Options{URL: url, Name: strings.Repeat("a", 200), Timeout: patience})
	require.NoError(t, err)
	return s
}

// opened is a store that is closed with the test.
func opened(t *testing.T, url string) *Store {
	t.Helper()
	s := open(t, url)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestDatabaseOfTheURL(t *testing.T) {
	for url, want := range map[string]string{
		"mongodb://127.0.0.1:1":       DefaultDatabase,
		"mongodb://127.0.0.1:1/other": "other",
	} {
		s, err := Open(Options{URL: url})
		require.NoError(t, err)
		if got := s.commits.Database().Name(); got != want {
			t.Errorf("%s: %s, want %s", url, got, want)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestErrorsOfURLsKeepSecrets(t *testing.T) {
	for _, url := range []string{
		"mongodb://me:secret@127.0.0.1:1/?appName=x&tls=secret",
		"mongodb://me:secret@127.0.0.1:port/",
		"mongo://me:secret@127.0.0.1/",
		"mongodb://me:sec%ret@127.0.0.1/",
		"mongodb://me:secret@127.0.0.1/?w=secret&journal=secret",
		"mongodb://me:secret@127.0.0.1/?maxPoolSize=secret",
	} {
		_, err := Open(Options{URL: url})
		if err == nil || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "sec%ret") {
			t.Errorf("%s: %v", url, err)
		}
	}
	lookup := &net.DNSError{Err: "server misbehaving", IsTemporary: true}
	if err := openError(lookup, "mongodb+srv://example.com/"); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("no name service: %v", err)
	}
}

func TestServerAway(t *testing.T) {
	s, err := Open(Options{URL: "mongodb://127.0.0.1:1/", Timeout: 200 * time.Millisecond})
	require.NoError(t, err)
	_, afterErr := s.After(t.Context(), 0)
	_, listErr := s.List(t.Context())
	for i, err := range []error{afterErr, listErr, s.Append(t.Context(), storetest.Commit(1)), s.Ping(t.Context()),
		s.Put(t.Context(), "a", nil), s.Remove(t.Context(), "a", 1)} {
		if !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%d: %v", i, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := s.Await(ctx, 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Await: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// A server that goes away and comes back is used again, by what waits too.
func TestServerComesBack(t *testing.T) {
	server := mongotest.Start(t)
	if !server.CanStop() {
		t.Skip("the real server is not ours to stop")
	}
	s, err := Open(Options{URL: server.URI("policies"), Timeout: 2 * time.Second})
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, s.Append(t.Context(), storetest.Commit(1)))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	woken := make(chan error, 1)
	go func() { woken <- s.Await(ctx, 1) }()
	server.Kill()
	if err := s.Append(ctx, storetest.Commit(2)); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("without a server: %v", err)
	}
	server.Restart()
	for err = store.ErrUnavailable; errors.Is(err, store.ErrUnavailable) && ctx.Err() == nil; {
		err = s.Append(ctx, storetest.Commit(2))
	}
	if err != nil {
		t.Error(err)
	}
	if err := <-woken; err != nil {
		t.Errorf("Await: %v", err)
	}
}

func TestDocumentsOfOthers(t *testing.T) {
	server := mongotest.Shared(t)
	s := opened(t, server.URI(server.NewDatabase(t)))
	insert := func(doc any) {
		t.Helper()
		if _, err := s.commits.InsertOne(t.Context(), doc); err != nil {
			t.Fatal(err)
		}
	}
	insert(bson.D{{Key: "_id", Value: int64(1)}, {Key: "format", Value: 2}})
	if _, err := s.After(t.Context(), 0); err == nil ||
		!strings.Contains(err.Error(), "its format is 2, and this program reads and writes format 1: run the version") {
		t.Errorf("a document of another format: %v", err)
	}
	for _, r := range []int64{11, 12, 13, 14, 15, 17} {
		raw, err := encode(storetest.Commit(r))
		require.NoError(t, err)
		insert(raw)
	}
	if _, err := s.After(t.Context(), 10); err == nil || !strings.Contains(err.Error(), "commit 17 follows 15") {
		t.Errorf("a gap: %v", err)
	}
}

func TestHints(t *testing.T) {
	for code, want := range map[int32]string{13: "role readWrite", 18: "password", 148: "enableMajorityReadConcern", 1: ""} {
		if got := hint(mongo.CommandError{Code: code}); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%d: %q", code, got)
		}
	}
}

func TestPresence(t *testing.T) {
	server := mongotest.Shared(t)
	url := server.URI(server.NewDatabase(t))
	a, b := opened(t, url), opened(t, url)
	put := func(s *Store, self, doc string) {
		t.Helper()
		require.NoError(t, s.Put(t.Context(), self, []byte(doc)))
	}
	put(a, "b.$x", "\x00first")
	put(b, "a", "other")
	put(a, "b.$x", "\x00second")
	want := []store.PresenceDoc{{Self: "a", Doc: []byte("other"), Beat: 1}, {Self: "b.$x", Doc: []byte("\x00second"), Beat: 2}}
	for _, s := range []*Store{a, b} {
		if docs, err := s.List(t.Context()); err != nil || !reflect.DeepEqual(docs, want) {
			t.Errorf("got %+v, %v", docs, err)
		}
	}
	remove := func(beat int64) {
		t.Helper()
		if err := b.Remove(t.Context(), "b.$x", beat); err != nil {
			t.Error(err)
		}
	}
	remove(1)
	if docs, err := a.List(t.Context()); err != nil || !reflect.DeepEqual(docs, want) {
		t.Errorf("after Remove by an earlier beat: %+v, %v", docs, err)
	}
	remove(2)
	remove(2)
	if docs, err := a.List(t.Context()); err != nil || !reflect.DeepEqual(docs, want[:1]) {
		t.Errorf("after Remove: %+v, %v", docs, err)
	}
	put(a, "b.$x", "again")
	if docs, err := a.List(t.Context()); err != nil || len(docs) != 2 || string(docs[1].Doc) != "again" {
		t.Errorf("put again after Remove: %+v, %v", docs, err)
	}
	if err := a.Put(t.Context(), "a", make([]byte, store.MaxCommitBytes+1)); !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("a document that is too large: %v", err)
	}
	closed := open(t, url)
	require.NoError(t, closed.Close())
	_, listErr := closed.List(t.Context())
	for i, err := range []error{listErr, closed.Put(t.Context(), "a", nil), closed.Remove(t.Context(), "a", 1)} {
		if !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%d: after Close: %v", i, err)
		}
	}
}
