package httpapi

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/test/require"
)

// start serves h until stop is called; stop returns what Serve returned.
func start(t *testing.T, h http.HandlerFunc, drain time.Duration) (base string, stop func(), result <-chan error) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	s := &Server{Handler: h, Logger: slog.New(slog.DiscardHandler), DrainTimeout: drain}
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, ln) }()
	t.Cleanup(cancel)
	return "http://" + ln.Addr().String(), cancel, done
}

func client(t *testing.T) *http.Client {
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

func TestServeLetsRequestsFinish(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	base, stop, result := start(t, func(w http.ResponseWriter, r *http.Request) {
		close(entered)
		<-leave
		if r.Context().Err() != nil {
			t.Error("the request's context ended with the server's")
		}
		_, _ = io.WriteString(w, "whole")
	}, time.Minute)

	body := make(chan string, 1)
	go func() {
		resp, err := client(t).Get(base)
		if err != nil {
			body <- err.Error()
			return
		}
		defer func() { _ = resp.Body.Close() }()
		b, _ := io.ReadAll(resp.Body)
		body <- string(b)
	}()
	<-entered
	stop()
	close(leave)
	if got := <-body; got != "whole" {
		t.Errorf("the request under way got %q", got)
	}
	if err := <-result; err != nil {
		t.Errorf("Serve: %v", err)
	}
	if _, err := client(t).Get(base); err == nil {
		t.Error("a stopped server answered")
	}
}

func TestServeCutsOffWhatDoesNotFinish(t *testing.T) {
	entered := make(chan struct{})
	ended := make(chan struct{})
	base, stop, result := start(t, func(_ http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
		close(ended)
	}, 0)
	failed := make(chan error, 1)
	go func() {
		resp, err := client(t).Get(base)
		if err == nil {
			_ = resp.Body.Close()
		}
		failed <- err
	}()
	<-entered
	stop()
	<-ended
	if err := <-result; err != nil {
		t.Errorf("Serve: %v", err)
	}
	if err := <-failed; err == nil {
		t.Error("a request that was cut off got an answer")
	}
}

func TestServeReportsABrokenListener(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	_ = ln.Close()
	s := &Server{Handler: http.NotFoundHandler(), Logger: slog.New(slog.DiscardHandler)}
	if err := s.Serve(t.Context(), ln); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Serve: %v", err)
	}
}
