package sendbuffer

import "sync"

// Sizes of a buffer's chunks. The first chunk is small, since a connection usually has one reply or
// one event to write. Large chunks hold a backlog.
const (
	smallChunk = 4 << 10
	largeChunk = 64 << 10
)

var (
	smallChunks = sync.Pool{New: func() any { return new([smallChunk]byte) }}
	largeChunks = sync.Pool{New: func() any { return new([largeChunk]byte) }}
)

// newChunk returns an empty chunk to follow so many others, when so many bytes are to be added.
func newChunk(before, bytes int) []byte {
	if before == 0 && bytes <= smallChunk {
		return smallChunks.Get().(*[smallChunk]byte)[:0]
	}
	return largeChunks.Get().(*[largeChunk]byte)[:0]
}

func freeChunk(c []byte) {
	switch cap(c) {
	case smallChunk:
		smallChunks.Put((*[smallChunk]byte)(c[:smallChunk]))
	case largeChunk:
		largeChunks.Put((*[largeChunk]byte)(c[:largeChunk]))
	}
}

// Scratch is a buffer for one frame that is read or written.
type Scratch struct{ B []byte }

// keepBytes is how large a buffer may be to be used again: one that held an exceptional frame is
// not kept.
const keepBytes = 256 << 10

var scratches = sync.Pool{New: func() any { return &Scratch{B: make([]byte, 0, 1024)} }}

// NewScratch returns an empty buffer, to be freed once it is not used any more.
func NewScratch() *Scratch { return scratches.Get().(*Scratch) }

// Free lets the buffer be used again.
func (s *Scratch) Free() {
	if cap(s.B) <= keepBytes {
		s.B = s.B[:0]
		scratches.Put(s)
	}
}
