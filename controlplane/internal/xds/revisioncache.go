package xds

import (
	"slices"
	"strconv"

	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"

	"github.com/sluice-bus/sluice/internal/policypb"
)

// marked is a cache of policies that knows the revision of its content. A response has the cache's
// version of when it was made, and may be sent later; with a lower or a higher revision than its
// content it could let a sidecar go back. policies.mu guards it.
type marked struct {
	*cache.LinearCache
	version uint64            // the cache's: it counts its changes
	now     policypb.Revision // the highest that the content is of
	past    []content         // that there was before, ascending
}

// content is the cache's content up to a version, and its highest revision.
type content struct {
	upTo     uint64
	revision policypb.Revision
}

// maxPast bounds the kept contents; no response waits that long.
const maxPast = 10_000

func newMarked(typeURL string) *marked { return &marked{LinearCache: cache.NewLinearCache(typeURL)} }

// follow says that the content is of a revision once the next updates, if any, are made.
func (m *marked) follow(r policypb.Revision, changes bool) {
	if changes {
		m.past = append(m.past, content{m.version, m.now})
		if len(m.past) > maxPast {
			m.past = slices.Delete(m.past, 0, maxPast/2)
		}
	}
	m.now = r
}

// update changes the cache, if there is anything to change.
func (m *marked) update(resources map[string]types.Resource, gone []string) error {
	if len(resources) == 0 && len(gone) == 0 {
		return nil
	}
	m.version++
	return update(m.LinearCache, resources, gone)
}

// revisionOf returns the revision of a response.
func (m *marked) revisionOf(version string) policypb.Revision {
	v, err := strconv.ParseUint(version, 10, 64)
	if err != nil || v > m.version {
		panic("xds: the cache's version is " + version) // the cache counts in another way
	}
	i, _ := slices.BinarySearchFunc(m.past, v, func(c content, v uint64) int {
		if c.upTo < v {
			return -1
		}
		return 1
	})
	if i == len(m.past) {
		return m.now
	}
	return m.past[i].revision
}

// update changes a cache, if there is anything to change.
func update(c *cache.LinearCache, resources map[string]types.Resource, gone []string) error {
	if len(resources) == 0 && len(gone) == 0 {
		return nil
	}
	return c.UpdateResources(resources, gone)
}
