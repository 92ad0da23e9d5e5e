package schema

import "sync"

// Cache keeps compiled schemas by their texts, a bounded number of them: those
// asked for since about the last Size other ones. It is safe for concurrent
// use.
type Cache struct {
	size int

	mu sync.RWMutex
	// recent gets what is asked for; when it is full, it becomes older, and
	// what was older is forgotten.
	recent, older map[string]*Schema
}

// NewCache makes a cache of up to size schemas, and again as many that have not
// been asked for lately.
func NewCache(size int) *Cache {
	return &Cache{size: size, recent: make(map[string]*Schema)}
}

// Get compiles a schema, unless it did so lately. Errors are not kept.
func (c *Cache) Get(text string) (*Schema, error) {
	c.mu.RLock()
	s, known := c.recent[text]
	if !known {
		s = c.older[text]
	}
	c.mu.RUnlock()
	if known {
		return s, nil
	}
	if s == nil {
		var err error
		if s, err = Compile(text); err != nil {
			return nil, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.recent) == c.size {
		c.recent, c.older = make(map[string]*Schema), c.recent
	}
	c.recent[text] = s
	return s, nil
}
