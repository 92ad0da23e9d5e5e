package schema

import "sync"

// Cache keeps compiled schemas by their texts, a bounded number of them. It is safe for concurrent
// use.
type Cache struct{ Recent[string, *Schema] }

// NewCache makes a cache of up to size schemas, and again as many that have not been asked for
// lately.
func NewCache(size int) *Cache { return &Cache{Recent[string, *Schema]{Size: size}} }

// Get compiles a schema, unless it did so lately. Errors are not kept.
func (c *Cache) Get(text string) (*Schema, error) {
	if s, known := c.Recent.Get(text); known {
		return s, nil
	}
	s, err := Compile(text)
	if err == nil {
		c.Put(text, s)
	}
	return s, err
}

// Recent keeps a bounded number of values by keys: the recently used ones, at least Size of them.
// It is safe for concurrent use.
type Recent[K comparable, V any] struct {
	Size int

	mu sync.RWMutex
	// recent gets each value that is used. When it is full, it becomes older, and the former older
	// is forgotten.
	recent, older map[K]V
}

// Get returns the value of a key, if it is kept.
func (r *Recent[K, V]) Get(key K) (V, bool) {
	r.mu.RLock()
	v, recent := r.recent[key]
	old := false
	if !recent {
		v, old = r.older[key]
	}
	r.mu.RUnlock()
	if old {
		r.Put(key, v)
	}
	return v, recent || old
}

// Put keeps a value.
func (r *Recent[K, V]) Put(key K, v V) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.recent == nil || len(r.recent) >= r.Size {
		r.recent, r.older = make(map[K]V), r.recent
	}
	r.recent[key] = v
}
