package sluice_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/option"
)

// scripted is a server that answers frames as it is told: with that text, whose %s is the corr, and
// by closing the connection where it is "". All that comes by HTTP has the status 204.
func scripted(t *testing.T, answer func(conn int, op string) string) *httptest.Server {
	var conns atomic.Int64
	return httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/ws" {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		conn := int(conns.Add(1))
		ws, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer ws.CloseNow()
		for {
			_, text, err := ws.Read(r.Context())
			if err != nil {
				return
			}
			var frame struct{ Op, Corr string }
			if err := json.Unmarshal(text, &frame); err != nil {
				t.Error(err)
				return
			}
			reply := answer(conn, frame.Op)
			if reply == "" {
				return
			}
			if err := ws.Write(r.Context(), websocket.MessageText, []byte(strings.Replace(reply, "%s", frame.Corr, 1))); err != nil {
				return
			}
		}
	}))
}

const okay = `{"op":"OK","corr":"%s"}`

func nothing(context.Context, *sluice.Message) error { return nil }

// TestARefusalForGoodEndsASubscription: it says why, and a token that is refused may be followed by
// another.
func TestARefusalForGoodEndsASubscription(t *testing.T) {
	for code, ends := range map[string]bool{"forbidden": true, "not_found": true, "unauthorized": false, "overloaded": false} {
		t.Run(code, func(t *testing.T) {
			var mu sync.Mutex
			subscribes := 0
			server := scripted(t, func(_ int, op string) string {
				if op != "SUBSCRIBE" {
					return okay
				}
				mu.Lock()
				defer mu.Unlock()
				if subscribes++; subscribes == 2 || subscribes > 1 && ends {
					return `{"op":"ERR","code":"` + code + `","msg":"no","corr":"%s"}`
				}
				return okay
			})
			server.Start()
			defer server.Close()
			changes := make(chan error, 100)
			dialled := make(chan net.Conn, 100)
			client, err := sluice.Dial(t.Context(), server.URL, sluice.WithBackoff(time.Millisecond, time.Millisecond),
				sluice.WithConnectionHook(func(c sluice.ConnectionChange) {
					if c.Topic != "" {
						changes <- c.Err
					}
				}),
				sluice.WithDialer(func(ctx context.Context, network, address string) (net.Conn, error) {
					conn, err := new(net.Dialer).DialContext(ctx, network, address)
					dialled <- conn
					return conn, err
				}))
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			<-dialled // the publisher's
			sub, err := client.Subscribe(t.Context(), "orders", "g", nothing)
			if err != nil {
				t.Fatal(err)
			}
			if err := sub.Err(); err != nil {
				t.Errorf("while it goes on: %v", err)
			}
			(<-dialled).Close()
			if ends {
				<-sub.Closed()
				want := map[string]error{"forbidden": sluice.ErrForbidden, "not_found": sluice.ErrNotFound}[code]
				if err := sub.Err(); !errors.Is(err, want) {
					t.Errorf("it ended because of %v", err)
				}
				<-changes // the connection was lost
				if err := <-changes; !errors.Is(err, want) {
					t.Errorf("the hook was told %v", err)
				}
				return
			}
			for err := <-changes; err != nil; { // until it is subscribed again
				err = <-changes
			}
			sub.Stop()
			<-sub.Closed()
			if err := sub.Err(); err != nil {
				t.Errorf("after Stop: %v", err)
			}
		})
	}
}

// TestTLSAndDialer: both are for WebSocket and HTTP alike.
func TestTLSAndDialer(t *testing.T) {
	server := scripted(t, func(int, string) string { return okay })
	server.StartTLS()
	defer server.Close()
	if _, err := sluice.Dial(t.Context(), server.URL); err == nil {
		t.Fatal("a certificate of an authority that nobody knows is trusted")
	}
	trusted := server.Client().Transport.(*http.Transport).TLSClientConfig
	var mu sync.Mutex
	var dialled []string
	client, err := sluice.Dial(t.Context(), "https://sidecar.test:7070",
		sluice.WithTLSConfig(&tls.Config{RootCAs: trusted.RootCAs, ServerName: "example.com"}),
		sluice.WithDialer(func(ctx context.Context, network, address string) (net.Conn, error) {
			mu.Lock()
			defer mu.Unlock()
			dialled = append(dialled, network+" "+address)
			return new(net.Dialer).DialContext(ctx, network, server.Listener.Addr().String())
		}))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.HTTP().DeleteTopic(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if got := fmt.Sprint(dialled); got != "[tcp sidecar.test:7070 tcp sidecar.test:7070]" {
		t.Errorf("dialled %s", got)
	}
}

// TestNilIsRefusedAtOnce: not only once it is needed.
func TestNilIsRefusedAtOnce(t *testing.T) {
	server := scripted(t, func(int, string) string { return okay })
	server.Start()
	defer server.Close()
	for name, option := range map[string]sluice.Option{
		"logger": sluice.WithLogger(nil), "TLS": sluice.WithTLSConfig(nil), "dialer": sluice.WithDialer(nil),
		"token": sluice.WithTokenFunc(nil), "hook": sluice.WithConnectionHook(nil),
	} {
		if _, err := sluice.Dial(t.Context(), server.URL, option); !errors.Is(err, sluice.ErrNil) {
			t.Errorf("%s: %v", name, err)
		}
	}
	client, err := sluice.Dial(t.Context(), server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := client.SubscribeBatch(t.Context(), "orders", "g", nil); !errors.Is(err, sluice.ErrNil) {
		t.Errorf("a handler of batches: %v", err)
	}
	if _, err := client.Subscribe(t.Context(), "orders", "g", nothing, option.Batch(2, 0)); err == nil {
		t.Error("a handler of one event has batches")
	}
	client.NewPublisher(nil, option.OnWait(nil)).Close()
	conn, err := sluice.DialConn(t.Context(), server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Subscribe(t.Context(), "orders", "g", nil, nil); !errors.Is(err, sluice.ErrNil) {
		t.Errorf("a callback of deliveries: %v", err)
	}
}

// TestOptionsThatMakeNoSense: they are refused, naming option and value.
func TestOptionsThatMakeNoSense(t *testing.T) {
	server := scripted(t, func(int, string) string { return okay })
	server.Start()
	defer server.Close()
	for want, option := range map[string]sluice.Option{
		"WithBackoff(0s, 1s)": sluice.WithBackoff(0, time.Second),
		"WithBackoff(2s, 1s)": sluice.WithBackoff(2*time.Second, time.Second),
		"WithHeartbeat(-1s)":  sluice.WithHeartbeat(-time.Second),
		"Window(0, 1)":        sluice.WithPublisher(option.Window(0, 1)),
	} {
		if _, err := sluice.Dial(t.Context(), server.URL, option); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	client, err := sluice.Dial(t.Context(), server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for want, opt := range map[string]option.Subscribe{
		"Concurrency(0)": option.Concurrency(0), "MaxInflight(-1)": option.MaxInflight(-1),
		"AckTimeout(1µs)":   option.AckTimeout(time.Microsecond),
		"MaxExtension(-1s)": option.MaxExtension(-time.Second), "RetryFor(-1s)": option.RetryFor(-time.Second),
		"MaxAttempts(0)": option.MaxAttempts(0), "RememberAcks(-1s)": option.RememberAcks(-time.Second), "MaxBytes(0)": option.MaxBytes(0),
	} {
		if _, err := client.Subscribe(t.Context(), "orders", "g", nothing, opt); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	publisher := client.NewPublisher(option.Window(1, 0))
	defer publisher.Close()
	err = publisher.Publish(t.Context(), &sluice.Event{Topic: "t", Payload: []byte("1")}, func(sluice.Receipt, error) {})
	if err == nil || !strings.Contains(err.Error(), "Window(1, 0)") {
		t.Errorf("a publisher's: %v", err)
	}
}

// TestErrorsAreValues: errors.Is finds a refusal's code, also where the refusal is wrapped or has
// other fields.
func TestErrorsAreValues(t *testing.T) {
	server := scripted(t, func(_ int, op string) string {
		if op == "PUBLISH" {
			return `{"op":"ERR","code":"topic_paused","msg":"the policy pauses the topic orders","corr":"%s"}`
		}
		return okay
	})
	server.Start()
	defer server.Close()
	client, err := sluice.Dial(t.Context(), server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	_, err = client.Publish(t.Context(), &sluice.Event{Topic: "orders", Payload: []byte("1")})
	if !errors.Is(err, sluice.ErrTopicPaused) || errors.Is(err, sluice.ErrConflict) {
		t.Errorf("got %v", err)
	}
}

// TestResumeWhileItSubscribesAgain: the last of Pause and Resume holds on the new connection.
func TestResumeWhileItSubscribesAgain(t *testing.T) {
	var mu sync.Mutex
	var ops []string
	subscribing, resumed := make(chan struct{}), make(chan struct{})
	subscribes := 0
	server := scripted(t, func(_ int, op string) string {
		mu.Lock()
		ops = append(ops, op)
		again := false
		if op == "SUBSCRIBE" {
			subscribes++
			again = subscribes == 2
		}
		mu.Unlock()
		if again {
			close(subscribing)
			<-resumed
		}
		return okay
	})
	server.Start()
	defer server.Close()
	dialled := make(chan net.Conn, 10)
	client, err := sluice.Dial(t.Context(), server.URL, sluice.WithBackoff(time.Millisecond, time.Millisecond),
		sluice.WithDialer(func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, address)
			dialled <- conn
			return conn, err
		}))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	<-dialled // the publisher's
	sub, err := client.Subscribe(t.Context(), "orders", "g", nothing)
	if err != nil {
		t.Fatal(err)
	}
	sub.Pause()
	(<-dialled).Close()
	<-subscribing
	sub.Resume()
	close(resumed)
	for left := false; !left; time.Sleep(time.Millisecond) { // until RESUME has come
		mu.Lock()
		left = slices.Contains(ops, "RESUME")
		mu.Unlock()
	}
	sub.Stop()
	<-sub.Closed()
	mu.Lock()
	defer mu.Unlock()
	if again := ops[slices.Index(ops, "RESUME"):]; slices.Contains(again, "PAUSE") {
		t.Errorf("after RESUME: %q", again)
	}
}
