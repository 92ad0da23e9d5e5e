package httpapi

import (
	"cmp"
	"net/http"
)

// Recorder is a ResponseWriter that records the status and the length of the answer.
type Recorder struct {
	http.ResponseWriter
	Bytes  int64
	status int // 0 until the answer begins
}

// Status is the answer's status.
func (r *Recorder) Status() int { return cmp.Or(r.status, http.StatusOK) }

// WriteHeader passes the status on. Statuses below 200 are not the answer's.
func (r *Recorder) WriteHeader(status int) {
	if r.status == 0 && status >= http.StatusOK {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *Recorder) Write(p []byte) (int, error) {
	r.status = r.Status()
	n, err := r.ResponseWriter.Write(p)
	r.Bytes += int64(n)
	return n, err
}

// Unwrap is for http.ResponseController.
func (r *Recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
