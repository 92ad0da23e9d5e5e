// Package lockedbuffer has a buffer for what several goroutines write, as the log of a program in a test.
package lockedbuffer

import (
	"strings"
	"sync"
)

// Buffer is an io.Writer whose text can be read meanwhile. The zero value is empty.
type Buffer struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements io.Writer.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// String returns all that was written.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// Take returns what was written since it was last called.
func (b *Buffer) Take() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.text.Reset()
	return b.text.String()
}

// Count is how often a text stands in what was written.
func (b *Buffer) Count(text string) int { return strings.Count(b.String(), text) }
