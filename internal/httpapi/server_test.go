package httpapi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"testing"
	"testing/synctest"
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

// TestBodyThatNeverComes: such a request is answered soon where nobody needs the body, and ends after
// a time where somebody does, with its connection; a body that has come ends nothing.
func TestBodyThatNeverComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const long = 10 * bodyTimeout
		mux := http.NewServeMux()
		mux.HandleFunc("/unread", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "answer") })
		mux.HandleFunc("/read", func(w http.ResponseWriter, r *http.Request) {
			_, err := io.ReadAll(r.Body)
			_, _ = fmt.Fprint(w, errors.Is(err, os.ErrDeadlineExceeded))
		})
		mux.HandleFunc("/long", func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.ReadAll(r.Body)
			select {
			case <-r.Context().Done():
			case <-time.After(long):
			}
			_, _ = fmt.Fprint(w, r.Context().Err())
		})
		ln := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
		ctx, stop := context.WithCancel(t.Context())
		served := make(chan error)
		go func() { served <- (&Server{Handler: mux, Logger: slog.New(slog.DiscardHandler)}).Serve(ctx, ln) }()
		for _, c := range []struct {
			path, body string // of 4 bytes
			answer     string
			answered   time.Duration
			closed     time.Duration // after the answer; a connection whose request came whole is kept
		}{
			{"/unread", "", "answer", unreadTimeout, 0},
			{"/unread", "abcd", "answer", 0, idleTimeout},
			{"/read", "", "true", bodyTimeout, 0},
			{"/read", "abcd", "false", 0, idleTimeout},
			{"/long", "abcd", "<nil>", long, idleTimeout},
		} {
			ours, theirs := net.Pipe()
			ln.conns <- theirs
			began := time.Now()
			_, err := fmt.Fprintf(ours, "POST %s HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\n%s", c.path, c.body)
			require.NoError(t, err)
			resp, err := http.ReadResponse(bufio.NewReader(ours), nil)
			require.NoError(t, err)
			text, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			if took := time.Since(began); string(text) != c.answer || took != c.answered {
				t.Errorf("%s with body %q: %s after %v; want %s after %v", c.path, c.body, text, took, c.answer, c.answered)
			}
			_, err = ours.Read(make([]byte, 1))
			if took := time.Since(began); err != io.EOF || took-c.answered != c.closed {
				t.Errorf("%s with body %q: the connection ends with %v after %v; want EOF after %v", c.path, c.body, err, took, c.closed)
			}
		}
		stop()
		require.NoError(t, <-served)
	})
}

// pipeListener has the connections that it is given, in memory.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error   { close(l.closed); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }
