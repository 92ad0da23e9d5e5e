package schema

import (
	"crypto/sha256"
	"sync"
)

// recent keeps what was made by key, a bounded number: those asked for since about the
// last size other ones. It is safe for concurrent use.
type recent[K comparable, V any] struct {
	size int

	mu sync.RWMutex
	// now gets what is asked for; when it is full, it becomes older, and what was older
	// is forgotten.
	now, older map[K]V
}

// get makes the value of a key, unless it did so lately. Errors are not kept.
func (r *recent[K, V]) get(key K, build func() (V, error)) (V, error) {
	r.mu.RLock()
	v, known := r.now[key]
	old := false
	if !known {
		v, old = r.older[key]
	}
	r.mu.RUnlock()
	if known {
		return v, nil
	}
	if !old {
		var err error
		if v, err = build(); err != nil {
			return v, err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.now == nil || len(r.now) == r.size {
		r.now, r.older = make(map[K]V), r.now
	}
	r.now[key] = v
	return v, nil
}

// Cache keeps compiled schemas by their texts. It is safe for concurrent use.
type Cache struct{ recent recent[string, *Schema] }

// NewCache makes a cache of up to size schemas, and again as many that have not
// been asked for lately.
func NewCache(size int) *Cache {
	return &Cache{recent[string, *Schema]{size: size}}
}

// Get compiles a schema, unless it did so lately. Errors are not kept.
func (c *Cache) Get(text string) (*Schema, error) {
	return c.recent.get(text, func() (*Schema, error) { return Compile(text) })
}

// good are the digests of those that compiled lately.
var good = recent[[sha256.Size]byte, struct{}]{size: 4096}

// Valid returns nil for a schema that compiles. It is for those who read the same
// schemas again and again, and keeps no more than digests of them.
func Valid(text string) error {
	_, err := good.get(sha256.Sum256([]byte(text)), func() (struct{}, error) {
		_, err := Compile(text)
		return struct{}{}, err
	})
	return err
}
