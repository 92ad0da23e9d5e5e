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

// Bounds of wrong tokens.
const (
	// freeGuesses of an address are answered at once, and then one each guessInterval, so that
	// mistakes cost no time and guessing is slow.
	freeGuesses   = 10
	guessInterval = 200 * time.Millisecond
	// maxGuessDelay is the longest delay of an answer. Unknown tokens of an address with that delay
	// are refused unchecked.
	maxGuessDelay = 5 * time.Second
	// maxSuspects bounds the addresses that are counted separately; further ones share one count.
	maxSuspects = 10000
)

// guesses slows down guessing of tokens: answers to an address with wrong tokens are delayed. A right
// token is never delayed. A token that has been right before is not checked here, nor is a JSON Web
// Token with a valid signature, so that their owners are not affected by guesses from the same
// machine. An unknown token is refused unchecked while the address has maxGuessDelay, since a quick
// answer to right tokens alone would tell the guesser which are right.
type guesses struct {
	mu    sync.Mutex
	until map[string]time.Time // by address: when the last of its failures is paid for

	refused, unseen atomic.Int64
}

// check refuses an unknown token of an address with too long a delay.
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

// failed counts a wrong token, and waits for the delay of its answer.
func (g *guesses) failed(ctx context.Context, from string) {
	g.refused.Add(1)
	pause.For(ctx, g.note(suspect(from), time.Now()))
}

// note counts a wrong token and returns the delay of its answer.
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

// forget removes the addresses that have all their free guesses again.
func (g *guesses) forget(now time.Time) {
	for address, until := range g.until {
		if now.Sub(until) >= freeGuesses*guessInterval {
			delete(g.until, address)
		}
	}
}

// suspect groups the addresses of one computer: those of loopback count as one, and an IPv6 network, since each computer has
// its own.
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
	switch {
	case ip.IsLoopback():
		return "localhost"
	case ip.Is4():
		return ip.String()
	}
	network, _ := ip.Prefix(64) // which an IPv6 address has
	return network.String()
}
