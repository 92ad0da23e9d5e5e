package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/sluicetest"
	"github.com/sluice-bus/sluice/test/testkit"
)

func start(t testing.TB, opts sluicetest.Options) *sluicetest.Sidecar {
	t.Helper()
	sidecar := sluicetest.Start(opts)
	t.Cleanup(sidecar.Close)
	return sidecar
}

func dialConn(t testing.TB, sidecar *sluicetest.Sidecar, opts *sluice.ConnOptions) *sluice.Conn {
	t.Helper()
	conn, err := sluice.DialConn(t.Context(), sidecar.URL, opts)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func eventOf(topic, id string) *wire.Event {
	return &wire.Event{Topic: topic, ID: id, Payload: []byte(`{"a":1}`)}
}

func TestPublish(t *testing.T) {
	sidecar := start(t, sluicetest.Options{})
	conn := dialConn(t, sidecar, nil)
	e := eventOf("orders", "1")
	e.Key, e.TS, e.Headers = "k", 17, wire.Headers{{Name: "h", Value: "v"}}
	receipt, err := conn.Publish(t.Context(), e)
	if err != nil || receipt.ID != "1" || receipt.Seq != 1 || receipt.TS != 17 {
		t.Fatalf("%+v, %v", receipt, err)
	}
	if receipt, err = conn.Publish(t.Context(), e); err != nil || !receipt.Duplicate {
		t.Fatalf("again: %+v, %v", receipt, err)
	}
	kept := sidecar.Events("orders")
	if len(kept) != 1 || kept[0].Key != "k" || string(kept[0].Payload) != `{"a":1}` {
		t.Fatalf("kept %+v", kept)
	}
	require.NoError(t, conn.Ping(t.Context()))
}

func TestRefusalIsAWireError(t *testing.T) {
	refusal := &wire.Error{Code: wire.RateLimited, Msg: "slow down", RetryAfter: 20 * time.Millisecond, Scope: "topic"}
	conn := dialConn(t, start(t, sluicetest.Options{Refuse: func(*wire.Event) *wire.Error { return refusal }}), nil)
	_, err := conn.Publish(t.Context(), eventOf("orders", ""))
	got, ok := errors.AsType[*wire.Error](err)
	if !ok || got.Code != wire.RateLimited || got.RetryAfter != refusal.RetryAfter || got.Scope != "topic" {
		t.Fatalf("got %v", err)
	}
	if conn.Err() != nil {
		t.Fatalf("a refusal ended the connection: %v", conn.Err())
	}
}

func TestPipelinedPublishesKeepTheirOrderAndAreAnsweredOnce(t *testing.T) {
	sidecar := start(t, sluicetest.Options{})
	conn := dialConn(t, sidecar, &sluice.ConnOptions{Window: 7})
	const count = 5000
	answered := make([]int, count) // written by the reading goroutine alone
	for i := range count {
		err := conn.PublishAsync(t.Context(), eventOf("orders", fmt.Sprint(i)), func(r wire.Receipt, err error) {
			if err != nil || r.ID != fmt.Sprint(i) {
				t.Errorf("event %d: %+v, %v", i, r, err)
			}
			answered[i]++
		})
		require.NoError(t, err)
	}
	require.NoError(t, conn.Flush(t.Context()))
	for i, e := range sidecar.Events("orders") {
		if e.ID != fmt.Sprint(i) {
			t.Fatalf("event %d has id %s", i, e.ID)
		}
	}
	for i, n := range answered {
		if n != 1 {
			t.Fatalf("event %d was answered %d times", i, n)
		}
	}
}

func TestBatch(t *testing.T) {
	conn := dialConn(t, start(t, sluicetest.Options{Refuse: func(e *wire.Event) *wire.Error {
		if e.ID == "bad" {
			return wire.Errorf(wire.TopicPaused, "paused")
		}
		return nil
	}}), nil)
	results, err := conn.PublishBatch(t.Context(), "orders", []wire.Event{*eventOf("", "1"), *eventOf("other", "bad"), *eventOf("", "3")})
	if err != nil || len(results) != 3 {
		t.Fatalf("%+v, %v", results, err)
	}
	if results[0].Receipt.Seq != 1 || results[1].Err == nil || results[1].Err.Code != wire.TopicPaused || results[2].Receipt.Seq != 2 {
		t.Fatalf("%+v", results)
	}
}

func TestManyPublishers(t *testing.T) {
	sidecar := start(t, sluicetest.Options{})
	conn := dialConn(t, sidecar, &sluice.ConnOptions{Window: 3})
	var publishers sync.WaitGroup
	for range 8 {
		publishers.Go(func() {
			for range 200 {
				if _, err := conn.Publish(t.Context(), eventOf("orders", "")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	publishers.Wait()
	if n := len(sidecar.Events("orders")); n != 1600 {
		t.Fatalf("%d events", n)
	}
}

func TestWaitingForRoomEndsWithTheContext(t *testing.T) {
	release := make(chan struct{})
	conn := dialConn(t, start(t, sluicetest.Options{Refuse: func(*wire.Event) *wire.Error { <-release; return nil }}),
		&sluice.ConnOptions{Window: 1})
	first := make(chan error, 1)
	require.NoError(t, conn.PublishAsync(t.Context(), eventOf("t", ""), func(_ wire.Receipt, err error) { first <- err }))
	ctx, cancel := context.WithCancel(t.Context())
	second := make(chan error, 1)
	go func() { second <- conn.PublishAsync(ctx, eventOf("t", ""), func(wire.Receipt, error) {}) }()
	cancel()
	if err := <-second; !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	close(release)
	require.NoError(t, <-first)
}

func TestLostConnectionAnswersEverything(t *testing.T) {
	var sidecar *sluicetest.Sidecar
	block := make(chan struct{})
	sidecar = start(t, sluicetest.Options{Refuse: func(*wire.Event) *wire.Error { <-block; return nil }})
	conn := dialConn(t, sidecar, &sluice.ConnOptions{Window: 2})
	results := make(chan error, 2)
	for range 2 {
		require.NoError(t, conn.PublishAsync(t.Context(), eventOf("t", ""), func(_ wire.Receipt, err error) { results <- err }))
	}
	full := make(chan error, 1)
	go func() { full <- conn.PublishAsync(t.Context(), eventOf("t", ""), func(wire.Receipt, error) {}) }()
	go sidecar.Disconnect() // waits for the lock, which the blocked publish has
	close(block)
	<-conn.Done()
	// The two may have been answered before the connection broke.
	for range 2 {
		if err := <-results; err != nil && !errors.Is(err, sluice.ErrClosed) {
			t.Errorf("answered with %v", err)
		}
	}
	if err := <-full; err != nil && !errors.Is(err, sluice.ErrClosed) {
		t.Errorf("the one that waited: %v", err)
	}
	if err := conn.Err(); !errors.Is(err, sluice.ErrClosed) {
		t.Errorf("Err is %v", err)
	}
	if _, err := conn.Publish(t.Context(), eventOf("t", "")); !errors.Is(err, sluice.ErrClosed) {
		t.Errorf("afterwards: %v", err)
	}
	if err := conn.Close(); !errors.Is(err, sluice.ErrClosed) {
		t.Errorf("Close gives %v", err)
	}
}

func TestCloseSendsWhatIsQueued(t *testing.T) {
	sidecar := start(t, sluicetest.Options{})
	conn := dialConn(t, sidecar, nil)
	for range 100 {
		require.NoError(t, conn.PublishAsync(t.Context(), eventOf("t", ""), func(wire.Receipt, error) {}))
	}
	require.NoError(t, conn.Close())
	testkit.Eventually(t, "all events have arrived", func() bool { return len(sidecar.Events("t")) == 100 })
	if err := conn.Ping(t.Context()); !errors.Is(err, sluice.ErrClosed) {
		t.Fatalf("a request afterwards: %v", err)
	}
}

func TestDialErrors(t *testing.T) {
	sidecar := start(t, sluicetest.Options{RefuseToken: wrongToken})
	for url, want := range map[string]string{
		"127.0.0.1:7070":       "", // no scheme
		"ftp://localhost":      "allowed are http://host:port",
		"unix:":                "no path",
		"http://":              "a scheme, a host and a port",
		"http://127.0.0.1:1":   "connecting to http://127.0.0.1:1",
		sidecar.URL + "/no":    "not_found",
		"unix:/does/not/exist": "connecting to unix:/does/not/exist",
	} {
		conn, err := sluice.DialConn(t.Context(), url, nil)
		if err == nil {
			_ = conn.Close()
			t.Errorf("%s: connected", url)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q does not say %q", url, err, want)
		}
	}
	if _, err := sluice.DialConn(t.Context(), sidecar.URL, &sluice.ConnOptions{Token: "wrong"}); !errors.Is(err,
		&wire.Error{Code: wire.Unauthorized}) {
		t.Errorf("with a wrong token: %v", err)
	}
	if dialConn(t, sidecar, &sluice.ConnOptions{Token: "right"}).Err() != nil {
		t.Error("the right token ended the connection")
	}
}

// BenchmarkPublishAsync measures client and test sidecar together.
func BenchmarkPublishAsync(b *testing.B) {
	conn := dialConn(b, start(b, sluicetest.Options{Forget: true}), nil)
	e := &wire.Event{Topic: "bench", ID: "0197f1de-8c1b-7aaa-8bbb-0123456789ab", Key: "key-1", Payload: []byte(`"` + strings.Repeat("x",
		200) + `"`)}
	done := func(_ wire.Receipt, err error) {
		if err != nil {
			b.Error(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		require.NoError(b, conn.PublishAsync(b.Context(), e, done))
	}
	require.NoError(b, conn.Flush(b.Context()))
}
