package boltstore

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"sync"

	"github.com/sluice-bus/sluice/internal/private"
)

// ackedName is the file with the number of the last transaction that was acknowledged. Where the
// store is at a lower one, a page was damaged, so that bbolt goes back to the transaction before, or
// an older copy was put in its place. The file is written after each transaction and not synced: a
// kill leaves it, and after a power failure it is older than the store, which is no damage.
const ackedName = "policies.acked"

type acked struct {
	mu   sync.Mutex
	path string
	last int
}

func openAcked(dir string) *acked {
	a := &acked{path: filepath.Join(dir, ackedName)}
	text, err := os.ReadFile(a.path)
	var last int
	if n, scanned := fmt.Sscanf(string(text), "%d", &last); err == nil && scanned == nil && n == 1 && bytes.Equal(text, ackedLine(last)) {
		a.last = last
	}
	return a
}

// note notes a transaction that is in the store. Where that fails the file has an older one, and
// notices less.
func (a *acked) note(transaction int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if transaction > a.last {
		a.last = transaction
		_ = os.WriteFile(a.path, ackedLine(transaction), private.File)
	}
}

// ackedLine has a checksum, so that a damaged file is ignored, and not taken for a damaged store.
func ackedLine(transaction int) []byte {
	line := fmt.Appendf(nil, "%d ", transaction)
	return fmt.Appendf(line, "%08x\n", crc32.ChecksumIEEE(line))
}
