package federation

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// errSilent: the peer did not answer GET /peer in time. errClear: the peer is not asked, since
// there is no TLS to it. errCopied: the folder of its store was copied from another sidecar.
// errFolder: it has another data folder than the listed one.
var (
	errSilent = errors.New("it did not answer in time")
	errClear  = errors.New("it is on another machine, and there is no TLS to it")
	errCopied = errors.New("its store is a copy of another sidecar's")
	errFolder = errors.New("it is back on another data folder")
)

// roll asks every sidecar for its identity, this one first. The result has each sidecar once,
// however many addresses it has, including those that did not answer.
func (f *Fleet) roll(ctx context.Context) []*sidecar {
	self := &sidecar{member: f.local, self: true}
	self.said, _ = f.local.hello(ctx)
	all := []*sidecar{self}
	if f.cfg.Peers != nil {
		for _, p := range f.cfg.Peers() {
			all = append(all, &sidecar{member: f.reach(p), listed: p})
		}
	}
	var calls errgroup.Group
	calls.SetLimit(atOnce)
	for _, s := range all[1:] {
		calls.Go(func() error {
			ctx, cancel := context.WithTimeoutCause(ctx, f.cfg.HelloTimeout, errSilent)
			defer cancel()
			s.said, s.err = s.hello(ctx)
			return nil
		})
	}
	_ = calls.Wait() // each keeps its own error
	all = once(all)
	for _, s := range all {
		f.learn(s)
	}
	return all
}

// once drops repeated sidecars: those listed under another address too, and earlier lives of those
// that have come back.
func once(all []*sidecar) []*sidecar {
	type life struct{ node, instance string }
	lives, nodes, silent := map[life]bool{}, map[string]*sidecar{}, map[string]bool{}
	var out []*sidecar
	for _, s := range all {
		if s.err != nil {
			continue
		}
		if want := s.listed.NodeID; want != "" && want != s.said.NodeID {
			// Another sidecar has the address now, so the listed one is not there.
			gone := *s
			gone.said.NodeID, gone.said.StoreID = "", ""
			gone.err = errors.New("another sidecar answers at its address: " + s.said.NodeID)
			all = append(all, &gone)
			s.listed = Peer{Address: s.listed.Address}
		}
		if want := s.listed.FolderID; want != "" && want != s.said.FolderID {
			// It is back on another data folder, and what it had spooled in the listed one is not there.
			gone := *s
			gone.said.StoreID, gone.err = "", errFolder
			all = append(all, &gone)
			s.listed = Peer{Address: s.listed.Address}
		}
		who := life{s.said.NodeID, s.said.Instance}
		if lives[who] {
			continue
		}
		lives[who] = true
		nodes[s.said.NodeID] = s
		out = append(out, s)
	}
	for _, s := range all {
		if s.err == nil || silent[s.name()] {
			continue
		}
		if now := nodes[s.listed.NodeID]; now != nil && s.listed.Gone && now.isLater(s.listed) {
			continue // the same sidecar in a later life
		}
		silent[s.name()] = true
		out = append(out, s)
	}
	return out
}

// isLater reports whether a sidecar is a later life of a listed one: it has the store and the data folder of that.
func (s *sidecar) isLater(p Peer) bool {
	return s.said.StoreID == p.StoreID && (s.said.FolderID == p.FolderID || p.FolderID == "")
}

// learn remembers whether a sidecar's store is shared.
func (f *Fleet) learn(s *sidecar) {
	if s.err != nil || s.said.StoreID == "" {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, known := f.shared[s.said.StoreID]; !known && len(f.shared) >= maxKnownStores {
		clear(f.shared)
	}
	f.shared[s.said.StoreID] = s.said.Shared
}

// hasNoSpool reports whether a sidecar that did not answer is known to have a store of its own.
func (f *Fleet) hasNoSpool(s *sidecar) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	shared, known := f.shared[s.storeID()]
	return known && !shared
}

// reasonOf says in a few words why a sidecar cannot be asked. There is no error if it answered but
// does not know its store yet.
func reasonOf(err error) string {
	var refused *wire.Error
	var unknown *net.DNSError
	switch {
	case err == nil:
		return "has not reached its store yet"
	case errors.Is(err, errClear):
		return "is on another machine, and there is no TLS to it (peers.ca or peers.tls in --auth-config)"
	case errors.Is(err, errForeign):
		return "sent something else than the events that it was asked for"
	case errors.Is(err, errCopied):
		return "has a copy of another sidecar's store"
	case errors.Is(err, errFolder):
		return "is back without its data folder, and what it had spooled there is missing"
	case errors.Is(err, errSilent), errors.Is(err, errStalled):
		return "does not answer"
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, os.ErrNotExist):
		return "is not listening"
	case errors.As(err, &unknown):
		return "has a name that cannot be resolved"
	case errors.Is(err, eventlog.ErrUnavailable), errors.Is(err, &wire.Error{Code: wire.StoreUnavailable}):
		return "cannot read its store"
	case errors.Is(err, &wire.Error{Code: wire.Unauthorized}), errors.Is(err, &wire.Error{Code: wire.Forbidden}):
		return "refuses the peer token"
	case errors.As(err, &refused):
		return "answers " + string(refused.Code)
	}
	return "cannot be read"
}
