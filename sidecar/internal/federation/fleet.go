package federation

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/replay"
)

// Config is what a Fleet needs. Bounds and times that are 0 get the defaults below.
type Config struct {
	// Self is this sidecar's identity.
	Self func() replay.Peer
	// Parts are its store and its spool; Store merges both, for look-ups.
	Parts replay.Parts
	Store replay.Source
	// Peers lists the other sidecars, as they are known now. It may name one twice, and this
	// sidecar too. nil: there are none.
	Peers func() []Peer
	// Unknown names the directory that may list further sidecars and cannot be reached, for people;
	// "" when all sidecars are known. nil: they are.
	Unknown func() string
	// Client is the TLS configuration for connections to peers; nil is without TLS.
	Client *access.Client
	// Insecure allows requests without TLS to peers on other machines.
	Insecure bool
	// Authorize adds this sidecar's credentials to a request to the peer with the node id that the
	// control plane lists, "" for a peer of --peers; nil adds none.
	Authorize func(r *http.Request, nodeID string)
	// Transport wraps the transport to peers; nil leaves it unchanged.
	Transport func(http.RoundTripper) http.RoundTripper
	Logger    *slog.Logger

	HelloTimeout time.Duration // for a peer to answer GET /peer, connecting included
	StallTimeout time.Duration // for a peer to send nothing while it is waited for
	SlowAfter    time.Duration // an answer has waited for a part when the log first names it
	SlowEvery    time.Duration // and from then on
	BufferBytes  int64         // read ahead in one stream
	MaxLine      int           // bytes of one event
	Remembered   int           // ids that one stream remembers exactly
}

const (
	defaultHelloTimeout = 2 * time.Second
	defaultStallTimeout = 15 * time.Second
	defaultSlowAfter    = time.Second
	defaultSlowEvery    = 10 * time.Second
	defaultBufferBytes  = 4 << 20
	defaultMaxLine      = 64 << 20
)

// minShare is the least number of bytes that one part may read ahead.
const minShare = 2 * chunkBytes

// atOnce bounds the requests to sidecars that one answer has under way. Parts that have begun to
// answer do not count: a merge needs all of them.
const atOnce = 32

// Fleet asks all sidecars, including this one. Its only goroutines are those of its streams.
type Fleet struct {
	cfg    Config
	local  *local
	client *http.Client
	base   *http.Transport
	reach  func(Peer) member

	mu     sync.Mutex
	shared map[string]bool // by the id of each store that a sidecar ever named
}

// maxKnownStores bounds the stores that a Fleet remembers.
const maxKnownStores = 4096

var _ replay.Fleet = (*Fleet)(nil)

// New makes a Fleet. It sends no request yet.
func New(c Config) *Fleet {
	c.setDefaults()
	f := &Fleet{
		cfg:    c,
		local:  &local{self: c.Self, parts: c.Parts, store: c.Store},
		base:   newTransport(c.Client),
		shared: map[string]bool{},
	}
	var transport http.RoundTripper = f.base
	if c.Transport != nil {
		transport = c.Transport(transport)
	}
	f.client = &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	f.reach = func(p Peer) member { return newPeer(&f.cfg, f.client, p) }
	return f
}

func (c *Config) setDefaults() {
	c.HelloTimeout = cmp.Or(c.HelloTimeout, defaultHelloTimeout)
	c.StallTimeout = cmp.Or(c.StallTimeout, defaultStallTimeout)
	c.SlowAfter = cmp.Or(c.SlowAfter, defaultSlowAfter)
	c.SlowEvery = cmp.Or(c.SlowEvery, defaultSlowEvery)
	c.MaxLine = cmp.Or(c.MaxLine, defaultMaxLine)
	c.Remembered = cmp.Or(c.Remembered, rememberedIDs)
	c.BufferBytes = cmp.Or(c.BufferBytes, defaultBufferBytes)
}

// Close closes idle connections. Close all streams before it.
func (f *Fleet) Close() { f.base.CloseIdleConnections() }

// Open asks every part for its events that q selects.
func (f *Fleet) Open(ctx context.Context, q replay.FleetQuery) (replay.FleetStream, error) {
	if err := q.Share.Enter(budget.FleetReplays); err != nil {
		return nil, err
	}
	s, err := f.open(ctx, q)
	if err != nil {
		q.Share.Leave(budget.FleetReplays)
		return nil, err
	}
	return s, nil
}

func (f *Fleet) open(ctx context.Context, q replay.FleetQuery) (*stream, error) {
	if q.Scan.MinTS > q.Scan.Upper() {
		return newStream(f, &plan{query: q}), nil // nothing is selected at any sidecar
	}
	plan := f.plan(f.roll(ctx), q)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s := newStream(f, plan)
	if err := s.mayBePartial(); err != nil {
		return nil, err
	}
	if err := s.takeMemory(); err != nil {
		return nil, err
	}
	if err := s.start(ctx); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

// Members asks every sidecar for its identity.
func (f *Fleet) Members(ctx context.Context) []replay.Member {
	var out []replay.Member
	for _, s := range f.roll(ctx) {
		m := replay.Member{NodeID: s.nodeID(), Address: s.listed.Address, StoreID: s.storeID(), Self: s.self, Reachable: s.err == nil}
		if s.err != nil {
			m.Reason = reasonOf(s.err)
		}
		out = append(out, m)
	}
	return out
}

// Lookup asks a sidecar of each store, and each sidecar that has a spool.
func (f *Fleet) Lookup(ctx context.Context, topic, id string, partial bool) (eventlog.Point, error) {
	plan := f.plan(f.roll(ctx), replay.FleetQuery{Topic: topic, Partial: partial})
	var mu sync.Mutex
	var found *int64
	var work errgroup.Group
	work.SetLimit(atOnce)
	ask := func(sources []*sidecar, gapOf func(error) gap) {
		work.Go(func() error {
			var ts []*int64
			err := anyOf(sources, func(s *sidecar) (err error) {
				ts, err = s.times(ctx, replay.AnyPart, topic, nil, []string{id})
				return err
			})
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				plan.gaps = append(plan.gaps, gapOf(err))
			} else if ts[0] != nil && (found == nil || *ts[0] < *found) {
				found = ts[0]
			}
			return nil
		})
	}
	for _, s := range plan.spools {
		ask([]*sidecar{s}, func(err error) gap { return spoolGap(s, err) })
	}
	for _, st := range plan.stores {
		if !slices.Contains(plan.spools, st.sources[0]) { // else its answer covers both
			ask(st.sources, func(err error) gap { return storeGap(st, err) })
		}
	}
	_ = work.Wait() // each failure is among the gaps
	if err := ctx.Err(); err != nil {
		return eventlog.Point{}, err
	}
	if err := plan.refusal(f.cfg.Logger); err != nil {
		return eventlog.Point{}, err
	}
	if found == nil {
		return eventlog.Point{}, eventlog.NotFound("event %q of topic %q in the whole fleet", id, topic)
	}
	return eventlog.Point{TS: *found, ID: id}, nil
}

// anyOf asks one sidecar after another until one answers.
func anyOf(sources []*sidecar, ask func(*sidecar) error) (err error) {
	for _, s := range sources {
		if err = ask(s); err == nil || errors.Is(err, context.Canceled) {
			return err
		}
	}
	return err
}
