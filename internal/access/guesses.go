package access

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// Bounds on guesses of tokens.
const (
	// freeGuesses of an address are answered at once, and then one each
	// guessInterval: mistakes cost nothing, and a search gets nowhere.
	freeGuesses   = 10
	guessInterval = 200 * time.Millisecond
	// maxGuessDelay is the longest that an answer is held back. What an address
	// sends when it has that much to wait for is refused unseen.
	maxGuessDelay = 5 * time.Second
	// maxSuspects is how many addresses are known apart; those past it share
	// what one has.
	maxSuspects = 10000
)

// guesses slows down the search for tokens: each address that shows wrong ones
// has to wait for its answers. A right token never waits. A token that has been
// right before is not even looked at here, so that its owner notices nothing of
// a search on the same machine; one that is new is refused unseen while the
// address has maxGuessDelay to wait for, since a quick answer to right ones alone
// would tell what a search wants to know.
type guesses struct {
	mu    sync.Mutex
	until map[string]time.Time // by address: when the last of its failures is paid for

	refused, unseen atomic.Int64
}

// check refuses a token that is new from an address with too much to wait for.
func (g *guesses) check(from string) error {
	g.mu.Lock()
	left := time.Until(g.until[suspect(from)])
	g.mu.Unlock()
	if left < maxGuessDelay {
		return nil
	}
	g.unseen.Add(1)
	return &wire.Error{
		Code: wire.RateLimited, Scope: "address", RetryAfter: left - maxGuessDelay + guessInterval,
		Msg: "too many wrong tokens came from this address: one that is new is not looked at for now",
	}
}

func (g *guesses) failures() (refused, unseen int64) { return g.refused.Load(), g.unseen.Load() }

// failed counts a wrong token, and waits for as long as its answer is held back.
func (g *guesses) failed(ctx context.Context, from string) {
	g.refused.Add(1)
	pause.For(ctx, g.note(suspect(from), time.Now()))
}

// note counts a wrong token and returns how long its answer is held back.
func (g *guesses) note(address string, now time.Time) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.until == nil {
		g.until = make(map[string]time.Time)
	}
	if _, known := g.until[address]; !known && len(g.until) >= maxSuspects {
		if g.forget(now); len(g.until) >= maxSuspects {
			address = ""
		}
	}
	until := g.until[address]
	if until.Before(now.Add(-freeGuesses * guessInterval)) {
		until = now.Add(-freeGuesses * guessInterval)
	}
	until = until.Add(guessInterval)
	g.until[address] = until
	return max(0, until.Sub(now))
}

// forget forgets the addresses that have all their free guesses again.
func (g *guesses) forget(now time.Time) {
	for address, until := range g.until {
		if now.Sub(until) >= freeGuesses*guessInterval {
			delete(g.until, address)
		}
	}
}

// suspect is what addresses that one computer has are known by: an IPv6 network,
// since each has one to itself.
func suspect(from string) string {
	host, _, err := net.SplitHostPort(from)
	if err != nil {
		return from // a unix socket's
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	ip = ip.Unmap().WithZone("")
	if ip.Is4() {
		return ip.String()
	}
	network, _ := ip.Prefix(64) // which an IPv6 address has
	return network.String()
}
