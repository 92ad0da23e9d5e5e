package xds

import (
	"errors"
	"sync"

	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
)

// held are the subscriptions to replay peers of sidecars that connected with known peers while the
// control plane is young: after its restart it would tell the first sidecars that all others are
// gone, and then that each of them is back. The sidecars keep their peers until all others had time
// to connect; then the server sends only differences.
type held struct {
	cache *cache.LinearCache

	mu      sync.Mutex // taken before the cache's own
	over    bool
	waiting map[*heldWatch]struct{}
}

// heldWatch is one subscription, and the watch that it becomes.
type heldWatch struct {
	request *cache.DeltaRequest
	sub     cache.Subscription // read with held.mu only, and not after cancel
	value   chan cache.DeltaResponse
	cancel  func()
}

func newHeld(c *cache.LinearCache) *held {
	return &held{cache: c, waiting: map[*heldWatch]struct{}{}}
}

// watch answers a subscription at once, or once that time is over.
func (h *held) watch(request *cache.DeltaRequest, sub cache.Subscription, value chan cache.DeltaResponse) (func(), error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over || len(request.GetInitialResourceVersions()) == 0 {
		return h.cache.CreateDeltaWatch(request, sub, value)
	}
	w := &heldWatch{request: request, sub: sub, value: value}
	h.waiting[w] = struct{}{}
	return func() { h.end(w) }, nil
}

func (h *held) end(w *heldWatch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.waiting, w)
	if w.cancel != nil {
		w.cancel()
	}
}

func (h *held) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.waiting)
}

// release answers the held subscriptions, and holds none from now on.
func (h *held) release() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over = true
	var bad []error
	for w := range h.waiting {
		var err error
		if w.cancel, err = h.cache.CreateDeltaWatch(w.request, w.sub, w.value); err != nil {
			bad = append(bad, err)
		}
	}
	h.waiting = nil
	return errors.Join(bad...)
}
