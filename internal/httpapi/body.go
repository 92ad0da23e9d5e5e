package httpapi

import (
	"io"
	"net/http"
	"time"
)

const (
	// bodyTimeout is how long a request's body may take to arrive, unless its handler allows another
	// time.
	bodyTimeout = time.Minute
	// unreadTimeout and maxUnread bound the part of a body that is read after its handler, so that
	// the connection can have another request.
	unreadTimeout = 5 * time.Second
	maxUnread     = 256 << 10
)

// boundBody gives the body of each request a deadline, also where the handler does not read it:
// net/http reads what a handler leaves, before the answer, and waits for it without end.
func boundBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body == nil || r.Body == http.NoBody {
			next.ServeHTTP(w, r)
			return
		}
		x := &bodied{ResponseWriter: w, request: *r, body: r.Body}
		_ = x.setDeadline(bodyTimeout)
		x.request.Body = x // in a copy: net/http goes by the type of its own
		next.ServeHTTP(x, &x.request)
	})
}

// bodied is a request with a body: it reads the body and writes the answer.
type bodied struct {
	http.ResponseWriter
	request  http.Request
	body     io.ReadCloser
	ended    error // of the body
	answered bool
}

func (x *bodied) setDeadline(after time.Duration) error {
	return http.NewResponseController(x.ResponseWriter).SetReadDeadline(time.Now().Add(after))
}

// Read reads the body. Its end lifts the deadline, which would end a request that takes longer.
func (x *bodied) Read(p []byte) (int, error) {
	n, err := x.body.Read(p)
	if err != nil && x.ended == nil {
		x.ended = err
		if err == io.EOF {
			_ = http.NewResponseController(x.ResponseWriter).SetReadDeadline(time.Time{})
		}
	}
	return n, err
}

// Close closes the body.
func (x *bodied) Close() error { return x.body.Close() }

// answer reads the rest of the body before the answer begins, and has the connection closed after
// the answer if the rest does not come. A client that waits for "100 Continue" sends no body yet, and
// HTTP/2 needs no rest.
func (x *bodied) answer() {
	if x.answered {
		return
	}
	x.answered = true
	if x.request.ProtoMajor != 1 || x.ended == io.EOF || x.request.Header["Expect"] != nil {
		return
	}
	if x.ended == nil {
		_ = x.setDeadline(unreadTimeout)
		_, _ = io.CopyN(io.Discard, x, maxUnread)
	}
	if x.ended != io.EOF {
		x.Header().Set("Connection", "close")
	}
}

func (x *bodied) WriteHeader(status int) {
	if status >= http.StatusOK {
		x.answer()
	}
	x.ResponseWriter.WriteHeader(status)
}

func (x *bodied) Write(p []byte) (int, error) {
	x.answer()
	return x.ResponseWriter.Write(p)
}

// FlushError is for http.ResponseController.
func (x *bodied) FlushError() error {
	x.answer()
	return http.NewResponseController(x.ResponseWriter).Flush()
}

// Unwrap is for http.ResponseController.
func (x *bodied) Unwrap() http.ResponseWriter { return x.ResponseWriter }
