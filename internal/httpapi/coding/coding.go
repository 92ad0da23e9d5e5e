// Package coding compresses HTTP answers as clients ask for it.
package coding

import (
	"io"
	"strconv"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// The content codings that an answer may have.
const (
	Identity = ""
	Gzip     = "gzip"
	Zstd     = "zstd"
)

// Encoder compresses the bytes that are written to it. Flush brings all of them to the client;
// Close marks the end of a complete text, so an incomplete one is not closed. A closed or broken
// encoder can be used again after Reset.
type Encoder interface {
	io.WriteCloser
	Flush() error
	Reset(w io.Writer)
}

// zstdWindow bounds what a zstd encoder holds, on both ends.
const zstdWindow = 512 << 10

// EncoderBytes is about what an encoder holds.
const EncoderBytes = 1 << 20

// encoders keeps encoders for reuse, by their coding: making their tables and window costs more
// than compressing a small answer. They have no goroutines. Their settings are constant and valid,
// so the constructors cannot fail.
var encoders = map[string]*sync.Pool{
	Gzip: {New: func() any {
		e, err := gzip.NewWriterLevel(io.Discard, gzip.BestSpeed)
		if err != nil {
			panic(err)
		}
		return e
	}},
	Zstd: {New: func() any {
		e, err := zstd.NewWriter(io.Discard, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true),
			zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(zstdWindow),
			zstd.WithZeroFrames(true)) // an empty body is a frame, too, since zstd requires one
		if err != nil {
			panic(err)
		}
		return e
	}},
}

// Get returns an encoder of a coding that is not Identity, which writes to w. Put gives it back.
func Get(coding string, w io.Writer) Encoder {
	e := encoders[coding].Get().(Encoder)
	e.Reset(w)
	return e
}

// Put takes an encoder back, which nobody uses any more.
func Put(coding string, e Encoder) {
	e.Reset(io.Discard)
	encoders[coding].Put(e)
}

// Negotiate chooses the coding by the Accept-Encoding headers (RFC 9110, 12.5.3): the one with the
// highest weight, and of equals zstd before gzip before none. "*" means only gzip, since a client
// that names no coding may not know zstd. Negotiate ignores an item that it cannot parse.
func Negotiate(acceptEncoding []string) string {
	weights := make(map[string]float64)
	for item := range strings.SplitSeq(strings.Join(acceptEncoding, ","), ",") {
		name, params, _ := strings.Cut(item, ";")
		name = strings.ToLower(strings.TrimSpace(name))
		if name == "x-gzip" {
			name = Gzip
		}
		if q, ok := weight(params); ok && name != "" {
			weights[name] = q
		}
	}
	if _, named := weights[Gzip]; !named {
		weights[Gzip] = weights["*"]
	}
	best, bestWeight := Identity, weights["identity"]
	for _, coding := range []string{Gzip, Zstd} {
		if q := weights[coding]; q > 0 && q >= bestWeight {
			best, bestWeight = coding, q
		}
	}
	return best
}

// weight reads the q of one item; 1 if there is none.
func weight(params string) (float64, bool) {
	name, value, given := strings.Cut(strings.TrimSpace(params), "=")
	if !given {
		return 1, params == "" || strings.TrimSpace(params) == ""
	}
	q, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
	ok := err == nil && strings.EqualFold(strings.TrimSpace(name), "q") && q >= 0 && q <= 1
	return q, ok
}
