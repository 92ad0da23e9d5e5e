package xds

import (
	"errors"
	"sync"

	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
)

// postponed are the subscriptions to replay peers of sidecars that connected with known peers while the
// control plane is young: after its restart it would tell the first sidecars that all others are
// gone, and then that each of them is back. The sidecars keep their peers until all others had time
// to connect; then the server sends only differences.
type postponed struct {
	cache *cache.LinearCache

	mu      sync.Mutex // taken before the cache's own
	over    bool
	waiting map[*postponedWatch]struct{}
}

// postponedWatch is one subscription, and the watch that it becomes.
type postponedWatch struct {
	request *cache.DeltaRequest
	sub     cache.Subscription // read with postponed.mu only, and not after cancel
	value   chan cache.DeltaResponse
	cancel  func()
}

func newPostponed(c *cache.LinearCache) *postponed {
	return &postponed{cache: c, waiting: map[*postponedWatch]struct{}{}}
}

// watch answers a subscription at once, or once that time is over.
func (h *postponed) watch(request *cache.DeltaRequest, sub cache.Subscription, value chan cache.DeltaResponse) (func(), error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over || len(request.GetInitialResourceVersions()) == 0 {
		return h.cache.CreateDeltaWatch(request, sub, value)
	}
	w := &postponedWatch{request: request, sub: sub, value: value}
	h.waiting[w] = struct{}{}
	return func() { h.end(w) }, nil
}

func (h *postponed) end(w *postponedWatch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.waiting, w)
	if w.cancel != nil {
		w.cancel()
	}
}

func (h *postponed) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.waiting)
}

// release answers the postponed subscriptions, and holds none from now on.
func (h *postponed) release() error {
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
