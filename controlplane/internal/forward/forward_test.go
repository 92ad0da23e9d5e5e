package forward_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/controlplane/internal/forward"
	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/internal/tunnel/tunneltest"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/require"
)

// tester is a test or a property's.
type tester interface {
	tunneltest.T
	Errorf(format string, args ...any)
}

// start serves a control plane that forwards all requests in the name of who the header From names.
func start(t tester) (*tunneltest.Plane, string) { return startAmong(t, forward.Planes{}) }

// startAmong is start among other control planes.
func startAmong(t tester, planes forward.Planes) (*tunneltest.Plane, string) {
	p := tunneltest.NewPlane(t, nil)
	f := forward.New(p.Server, func(store string) bool { return store == "left" }, planes)
	front := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		store := r.Header.Get("Store")
		if store == "" {
			store = tunneltest.Store
		}
		err := f.Serve(w, r, forward.Request{
			Store: store, URL: url.URL{Path: r.URL.Path, RawQuery: r.URL.RawQuery},
			As: forward.Person{Name: r.Header.Get("From"), Role: access.RoleOperator, Topics: []string{"orders.*"}},
		})
		if err != nil {
			httpapi.WriteError(w, r, err, slog.New(slog.DiscardHandler))
		}
	}))
	front.Start()
	t.Cleanup(func() {
		front.Close()
		f.Close()
	})
	return p, front.URL
}

// send makes a request; headers are names and values in turn.
func send(ctx context.Context, method, url, body string, headers ...string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	return client.Do(r)
}

// read is the status and the whole body of an answer.
func read(answer *http.Response, err error) (int, string, error) {
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(body), err
}

func TestARequestComesAsItWasSentInThePersonsName(t *testing.T) {
	p, at := start(t)
	p.Serve(t, "node", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Trailer", "Sluice-Missing")
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprintf(w, "%s %s %s user=%s role=%s topics=%s key=%s token=%q cookie=%q", r.Method, r.URL, body, r.Header.Get("Sluice-User"),
			r.Header.Get("Sluice-Role"), r.Header.Get("Sluice-Topics"), r.Header.Get("Sluice-Key"), r.Header.Get("Authorization"),
			r.Header.Get("Cookie"))
		w.Header().Set("Sluice-Missing", "some")
	}))
	p.Await(t, 1)
	answer, err := send(t.Context(), "POST", at+"/v1/topics/orders.a/events?x=1", "body", "From", "ann", "Sluice-Key", "k",
		"Sluice-Role", "admin", "Sluice-User", "root", "Authorization", "Bearer secret", "Cookie", "session=1")
	status, body, err := read(answer, err)
	require.NoError(t, err)
	want := `POST /v1/topics/orders.a/events?x=1 body user=ann role=operator topics=orders.* key=k token="" cookie=""`
	if status != http.StatusAccepted || body != want || answer.Trailer.Get("Sluice-Missing") != "some" {
		t.Errorf("%d %s %v", status, body, answer.Trailer)
	}
}

func TestWhyThereIsNoAnswer(t *testing.T) {
	p, at := start(t)
	for store, want := range map[string]wire.Code{"unknown": wire.NotFound, "left": wire.PartialFleet} {
		status, body, err := read(send(t.Context(), "GET", at, "", "Store", store))
		if err != nil || status != want.HTTPStatus() || !strings.Contains(body, store) {
			t.Errorf("%s: %d %s %v", store, status, body, err)
		}
	}
	p.Serve(t, "node", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	p.Await(t, 1)
	for method, want := range map[string]string{"GET": "no sidecar of the store answers", "POST": "may be done, or not"} {
		status, body, err := read(send(t.Context(), method, at, ""))
		if err != nil || status != http.StatusBadGateway || !strings.Contains(body, want) || !strings.Contains(body, `"missing":["store"]`) {
			t.Errorf("%s: %d %s %v", method, status, body, err)
		}
	}
}

// Whatever sidecars do, an answer is whole or visibly broken, and a change is made once at most.
func TestWhenSidecarsDie(t *testing.T) {
	whole := bytes.Repeat([]byte("0123456789"), 40_000)
	rapid.Check(t, func(t *rapid.T) {
		p, at := start(t)
		var begun, done sync.Map
		var rounds atomic.Int64
		sidecars := rapid.IntRange(1, 3).Draw(t, "sidecars")
		kills := make([]func(), sidecars)
		for i := range kills {
			dies := rapid.Int64Range(-1, 8).Draw(t, "dies at request")
			kills[i] = p.Serve(t, fmt.Sprint(i), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				id := r.URL.Query().Get("id")
				n, _ := begun.LoadOrStore(id, new(atomic.Int64))
				n.(*atomic.Int64).Add(1)
				dying := rounds.Add(1) == dies
				if dying && len(id)%2 == 0 {
					kills[i]()
				}
				_, _ = w.Write(whole[:len(whole)/2])
				if dying {
					kills[i]()
				}
				_, _ = w.Write(whole[len(whole)/2:])
			}))
		}
		p.Await(t, sidecars)
		var work sync.WaitGroup
		for i := range rapid.IntRange(1, 12).Draw(t, "requests") {
			method := rapid.SampledFrom([]string{"GET", "POST"}).Draw(t, "method")
			work.Go(func() {
				id := method + strings.Repeat("x", i)
				status, body, err := read(send(context.Background(), method, at+"/?id="+id, ""))
				switch {
				case err != nil || status == http.StatusBadGateway:
				case status != http.StatusOK || body != string(whole):
					t.Errorf("%s is answered with %d and %d bytes of %d", method, status, len(body), len(whole))
				default:
					done.Store(id, true)
				}
			})
		}
		work.Wait()
		begun.Range(func(id, n any) bool {
			if strings.HasPrefix(id.(string), "POST") && n.(*atomic.Int64).Load() > 1 {
				t.Errorf("%s was begun %d times", id, n.(*atomic.Int64).Load())
			}
			return true
		})
	})
}

func TestAnotherSidecarIsAsked(t *testing.T) {
	p, at := start(t)
	p.Serve(t, "dead", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	p.Serve(t, "alive", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "yes") }))
	p.Await(t, 2)
	for range 10 {
		if status, body, err := read(send(t.Context(), "GET", at, "")); err != nil || status != 200 || body != "yes" {
			t.Errorf("%d %s %v", status, body, err)
		}
	}
}

func TestAThousandRequestsAtOnceAreBounded(t *testing.T) {
	p, at := start(t)
	var now, most, served atomic.Int64
	p.Serve(t, "node", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := now.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		served.Add(1)
		_, _ = w.Write(make([]byte, 100_000))
		now.Add(-1)
	}))
	p.Await(t, 1)
	var work sync.WaitGroup
	var ok, refused atomic.Int64
	for i := range 1000 {
		work.Go(func() {
			status, body, err := read(send(t.Context(), "GET", at, "", "From", fmt.Sprint("person ", i%4)))
			switch {
			case err == nil && status == http.StatusOK && len(body) == 100_000:
				ok.Add(1)
			case err == nil && status == http.StatusServiceUnavailable && strings.Contains(body, "overloaded"):
				refused.Add(1)
			default:
				t.Errorf("%d, %d bytes, %v", status, len(body), err)
			}
		})
	}
	work.Wait()
	if most.Load() > 16 || ok.Load() == 0 {
		t.Errorf("%d at a time at one sidecar; %d answered, %d refused", most.Load(), ok.Load(), refused.Load())
	}
}

func TestOnePersonLeavesPlacesToOthers(t *testing.T) {
	p, at := start(t)
	open := make(chan struct{}, 100)
	p.Serve(t, "node", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		if r.URL.Path == "/stream" {
			_ = http.NewResponseController(w).Flush()
			open <- struct{}{}
			<-r.Context().Done()
		}
	}))
	p.Await(t, 1)
	ctx, leave := context.WithCancel(t.Context())
	var streams sync.WaitGroup
	for range 20 {
		streams.Go(func() { _, _, _ = read(send(ctx, "GET", at+"/stream", "", "From", "ann")) })
	}
	for range 12 {
		<-open
	}
	if status, body, err := read(send(t.Context(), "GET", at, "", "From", "bob")); err != nil || status != 200 {
		t.Errorf("bob: %d %s %v", status, body, err)
	}
	leave() // and all of ann's end at the sidecar: Close would wait for them
	streams.Wait()
}

func TestAReaderThatStopsHoldsBackTheSidecar(t *testing.T) {
	p, at := start(t)
	var written atomic.Int64
	ended := make(chan error, 1)
	p.Serve(t, "node", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for {
			n, err := w.Write(make([]byte, 64<<10))
			written.Add(int64(n))
			if err != nil {
				ended <- errors.Join(err, r.Context().Err())
				return
			}
		}
	}))
	p.Await(t, 1)
	answer, err := send(t.Context(), "GET", at, "")
	require.NoError(t, err)
	for last := int64(-1); last != written.Load(); { // until nothing moves any more
		last = written.Load()
		select {
		case <-ended:
			t.Fatal("it ends by itself")
		case <-t.Context().Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
	// The kernel holds the most of it, for the reader: both buffers of a connection.
	if written.Load() > 16<<20 {
		t.Errorf("%d bytes are on their way to somebody who does not read", written.Load())
	}
	answer.Body.Close()
	if err := <-ended; err == nil {
		t.Error("the sidecar is not told that the reader has left")
	}
}
