package coding

import (
	"io"
	"net/http"
	"runtime"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// maxWindow is the largest window of a zstd body, which RFC 9659 allows to all senders.
const maxWindow = 8 << 20

// decoders bounds how many bodies are decoded at a time: the windows take memory. Nobody holds one while waiting for a client.
var decoders = make(chan struct{}, 2*runtime.GOMAXPROCS(0))

// OfBody is the content coding of a request's body; false: it is none that is taken.
func OfBody(h http.Header) (coding string, ok bool) {
	values := h["Content-Encoding"]
	if len(values) > 1 {
		return "", false
	}
	switch coding = strings.ToLower(strings.TrimSpace(strings.Join(values, ""))); coding {
	case Identity, "identity":
		return Identity, true
	case Gzip, "x-gzip":
		return Gzip, true
	case Zstd:
		return Zstd, true
	}
	return "", false
}

// Decode passes a reader of the text of a body, which is complete and of a coding that is not Identity, to read.
func Decode(coding string, body io.Reader, read func(io.Reader) error) error {
	decoders <- struct{}{}
	defer func() { <-decoders }()
	if coding == Gzip {
		r, err := gzip.NewReader(body)
		if err != nil {
			return err
		}
		return read(r)
	}
	r, err := zstd.NewReader(body, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return err
	}
	defer r.Close()
	return read(r)
}
