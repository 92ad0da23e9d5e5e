// Package budget counts what clients make a program hold, in bytes and in places, in three levels:
// of clients that have not authenticated, of each identity, and of all together.
//
// What an identity uses beyond its share counts for that identity alone: so it never uses up more of
// the whole than its share.
package budget

import (
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// Place is a kind of work that has a bound on how much of it is under way.
type Place int

// The kinds of work of a sidecar, and of a control plane.
const (
	Pulls           Place = iota // requests that pull
	Pullers                      // members that stand for pulls, one for each group and set of opts
	Streams                      // server-sent events
	DaprStreams                  // subscriptions of Dapr's API over gRPC
	Trails                       // ended streams whose clients can go on
	Latest                       // answers with the latest event of each key
	Replays                      // replays and exports
	FleetReplays                 // those that ask all sidecars
	Plans                        // of a retention: each reads a topic
	Scrapes                      // answers with metrics, or with the status
	Profiles                     // of the process
	Watches                      // server-sent events of a control plane
	Checks                       // of documents with policies, by who may not change them
	Applies                      // of such documents, by who may
	Connections                  // to a sidecar's app listener
	DaprConnections              // to its listener for Dapr's API
	Kinds
)

// names are for people; each follows a number.
var names = [Kinds]string{
	"pulls at a time", "groups, or sets of opts of one, to pull from", "streams (server-sent events)",
	"streams of Dapr's API", "ended streams that are remembered",
	"answers with latest events at a time",
	"replays and exports at a time", "replays of the whole fleet at a time", "topics counted at a time",
	"answers with metrics or the status at a time", "profiles at a time", "watches at a time", "checks and dry runs at a time",
	"applies at a time", "connections (--max-connections)", "connections to Dapr's API (--max-connections)",
}

const (
	// SharesOfAll says which part of everything one identity may use, where there are several: one
	// of so many.
	SharesOfAll = 4
	// sharesForUnauthenticated says which part of the memory all clients may use that have not
	// authenticated; they have no places.
	sharesForUnauthenticated = 16
)

// Bounds are those of all clients together.
type Bounds struct {
	Memory int64 // bytes; clients of one identity may hold a share
	Places [Kinds]int64
	// Identities says that clients are told apart. Without, all are one, whose share is the whole.
	Identities bool
}

// ControlPlanePlaces are the most places of a control plane.
func ControlPlanePlaces() [Kinds]int64 {
	return [Kinds]int64{Scrapes: 16, Profiles: 4, Watches: 500, Checks: 8, Applies: 8}
}

// DefaultPlaces are the most places of a sidecar. Its listeners may allow fewer.
func DefaultPlaces() [Kinds]int64 {
	return [Kinds]int64{
		Pulls: 4096, Pullers: 1000, Streams: 4096, DaprStreams: 128, Trails: 128, Latest: 64, Replays: 256, FleetReplays: 16, Plans: 2,
		Scrapes: 16, Profiles: 4, Connections: 20_000, DaprConnections: 20_000,
	}
}

// Budget is what all clients of a program may use. A nil one has no bounds. Its methods, and those
// of its shares, are safe for concurrent use.
type Budget struct {
	bounds          Bounds
	memory          atomic.Int64
	places          [Kinds]atomic.Int64
	unauthenticated *Share

	mu     sync.RWMutex
	shares map[string]weak.Pointer[Share]
}

// New makes a budget of which nothing is used.
func New(b Bounds) *Budget {
	all := &Budget{bounds: b, shares: make(map[string]weak.Pointer[Share])}
	all.unauthenticated = &Share{of: all, bounds: Bounds{Memory: max(b.Memory/sharesForUnauthenticated, 1)}}
	return all
}

// Unauthenticated is the share of all clients that have not authenticated.
func (b *Budget) Unauthenticated() *Share {
	if b == nil {
		return nil
	}
	return b.unauthenticated
}

// Of is the share of an identity. It lasts as long as somebody has it.
func (b *Budget) Of(identity string) *Share {
	if b == nil {
		return nil
	}
	b.mu.RLock()
	s := b.shares[identity].Value()
	b.mu.RUnlock()
	if s != nil {
		return s
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.shares[identity].Value(); s != nil {
		return s
	}
	s = &Share{of: b, identity: identity, bounds: b.bounds}
	if b.bounds.Identities {
		s.bounds.Memory = max(s.bounds.Memory/SharesOfAll, 1)
		for i := range s.bounds.Places {
			s.bounds.Places[i] = max(s.bounds.Places[i]/SharesOfAll, 1)
		}
	}
	b.shares[identity] = weak.Make(s)
	runtime.AddCleanup(s, b.forget, identity)
	return s
}

// forget drops the entry of an identity that has no share any more.
func (b *Budget) forget(identity string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.shares[identity].Value() == nil {
		delete(b.shares, identity)
	}
}

// Most is how many bytes all clients may hold.
func (b *Budget) Most() int {
	if b == nil {
		return math.MaxInt
	}
	return int(b.bounds.Memory)
}

// Used is how many bytes all clients hold.
func (b *Budget) Used() int64 {
	if b == nil {
		return 0
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	used := b.unauthenticated.Used()
	for _, s := range b.shares {
		used += s.Value().Used()
	}
	return used
}

// Share is what the clients of one identity may use. A nil one has no bounds.
type Share struct {
	of       *Budget
	identity string // "": of clients that have not authenticated
	bounds   Bounds
	memory   atomic.Int64
	places   [Kinds]atomic.Int64
}

// TryTake takes n bytes if the share, and the whole, have that many left. The error is a
// *wire.Error.
func (s *Share) TryTake(n int) error {
	if s == nil {
		return nil
	}
	if s.add(n) > s.bounds.Memory {
		s.Give(n)
		return s.refuse("hold %d bytes of requests and deliveries (of --max-buffered-bytes)", s.bounds.Memory)
	}
	if s.of.memory.Load() > s.of.bounds.Memory {
		s.Give(n)
		return s.of.refuse("hold %d bytes of requests and deliveries (--max-buffered-bytes)", s.of.bounds.Memory)
	}
	return nil
}

// Take takes n bytes, also beyond the share: for data that is in memory already. Callers check Full
// before they cause more of it.
func (s *Share) Take(n int) {
	if s != nil {
		s.add(n)
	}
}

// Give gives back n bytes that were taken.
func (s *Share) Give(n int) { s.Take(-n) }

// add changes what the share uses. The whole counts only as much of it as the share allows.
func (s *Share) add(n int) (used int64) {
	used = s.memory.Add(int64(n))
	s.of.memory.Add(min(used, s.bounds.Memory) - min(used-int64(n), s.bounds.Memory))
	return used
}

// Full reports whether nothing is left of the share, or of the whole.
func (s *Share) Full() bool {
	return s != nil && (s.memory.Load() >= s.bounds.Memory || s.of.memory.Load() >= s.of.bounds.Memory)
}

// Scarce reports whether less than half is left of either. Callers then do without optional memory.
func (s *Share) Scarce() bool {
	return s != nil && (s.memory.Load() > s.bounds.Memory/2 || s.of.memory.Load() > s.of.bounds.Memory/2)
}

// Used is how many bytes of the share are taken.
func (s *Share) Used() int64 {
	if s == nil {
		return 0
	}
	return s.memory.Load()
}

// Held is what one request holds of a share until it is freed. It is for one goroutine.
type Held struct {
	Share *Share
	bytes int
}

// TryTake takes n bytes more, or returns a *wire.Error.
func (h *Held) TryTake(n int) error {
	err := h.Share.TryTake(n)
	if err == nil {
		h.bytes += n
	}
	return err
}

// Give gives back n bytes before the rest.
func (h *Held) Give(n int) {
	h.bytes -= n
	h.Share.Give(n)
}

// Free gives all back.
func (h *Held) Free() { h.Give(h.bytes) }

// Enter takes a place if one is left of the share, and of the whole. The error is a *wire.Error.
func (s *Share) Enter(p Place) error {
	if s == nil {
		return nil
	}
	if s.places[p].Add(1) > s.bounds.Places[p] {
		s.places[p].Add(-1)
		return s.refuse("have %d "+names[p], s.bounds.Places[p])
	}
	if s.of.places[p].Add(1) > s.of.bounds.Places[p] {
		s.Leave(p)
		return s.of.refuse("have %d "+names[p], s.of.bounds.Places[p])
	}
	return nil
}

// Leave gives back a place that was taken.
func (s *Share) Leave(p Place) {
	if s != nil {
		s.places[p].Add(-1)
		s.of.places[p].Add(-1)
	}
}

// retryAfter is when to try again: places and memory are free once requests are answered or events
// read, which is quick, or time out.
const retryAfter = time.Second

func (s *Share) refuse(may string, most int64) *wire.Error {
	switch {
	case s == s.of.unauthenticated:
		return refusal("all clients that have not authenticated together", may, most)
	case !s.of.bounds.Identities:
		return s.of.refuse(may, most)
	}
	return refusal(fmt.Sprintf("all clients of the identity %q together", s.identity), may, most)
}

func (b *Budget) refuse(may string, most int64) *wire.Error {
	return refusal("all clients together", may, most)
}

func refusal(who, may string, most int64) *wire.Error {
	return &wire.Error{
		Code: wire.Overloaded, RetryAfter: retryAfter,
		Msg: fmt.Sprintf("%s may "+may+", and do: try again later, or with less at once", who, most),
	}
}
