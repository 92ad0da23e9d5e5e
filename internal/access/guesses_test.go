package access

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// guess is a wrong token that was not shown before.
func guess(i int) string { return fmt.Sprintf("wrong-token-%08d", i) }

// A search for a token gets few answers, whether it waits for them or not, and those who use theirs
// notice nothing of it.
func TestGuessesAreSlow(t *testing.T) {
	for _, patient := range []bool{true, false} {
		t.Run(fmt.Sprintf("patient %t", patient), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, i := newFolder(t), newIssuer(t, "one")
				f.write("keys.json", i.keys())
				f.writef("auth.yaml", "tokens: [{name: app, sha256: %s}, {name: late, sha256: %s}]"+jwtText, sumOf(aliceToken), sumOf(nodeToken))
				a, _ := f.open(Sidecar)
				const from, length = "127.0.0.1:4711", 10 * time.Second
				if _, err := a.Token(t.Context(), aliceToken, from); err != nil {
					t.Fatal(err)
				}
				ctx, stop := context.WithTimeout(t.Context(), length)
				defer stop()
				var searching sync.WaitGroup
				for i := range 200 {
					searching.Go(func() {
						for n := i; ctx.Err() == nil; n += 200 {
							give, up := context.WithTimeout(ctx, time.Millisecond)
							if patient {
								give, up = ctx, func() {}
							}
							_, err := a.Token(give, guess(n), fmt.Sprintf("127.0.%d.%d:4711", n/200%256, n%200))
							if up(); err == nil {
								t.Error("a wrong token came in")
							}
							if errors.Is(err, coded(wire.RateLimited)) {
								time.Sleep(10 * time.Millisecond)
							}
						}
					})
				}
				for range int(length/time.Second) - 1 {
					time.Sleep(time.Second)
					before := time.Now()
					if _, err := a.Token(t.Context(), aliceToken, from); err != nil || time.Since(before) > 0 {
						t.Errorf("a token in use: %v after %v", err, time.Since(before))
					}
					if _, err := a.Token(t.Context(), i.sign(claimSet{"jti": before}), from); err != nil || time.Since(before) > 0 {
						t.Errorf("a new JSON Web Token: %v after %v", err, time.Since(before))
					}
					if _, err := a.Token(t.Context(), nodeToken, "192.0.2.2:1"); err != nil || time.Since(before) > 0 {
						t.Errorf("another address: %v after %v", err, time.Since(before))
					}
				}
				searching.Wait()
				refused, unseen := a.Failures()
				if most := int64(freeGuesses + (length+maxGuessDelay)/guessInterval + 1); refused > most || refused < freeGuesses || unseen == 0 {
					t.Errorf("%d wrong tokens were looked at, want at most %d; %d were not", refused, most, unseen)
				}
				time.Sleep(2 * maxGuessDelay)
				if err := a.guesses.check(from); err != nil {
					t.Errorf("after the search: %v", err)
				}
			})
		})
	}
}

// A few wrong tokens, and a right token that is new, are not delayed.
func TestMistakesAreFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFolder(t)
		f.writef("auth.yaml", "tokens: [{name: app, sha256: %s}]", sumOf(aliceToken))
		a, _ := f.open(Sidecar)
		begin := time.Now()
		for i := range freeGuesses {
			if _, err := a.Token(t.Context(), guess(i), "127.0.0.1:1"); !errors.Is(err, coded(wire.Unauthorized)) {
				t.Error(err)
			}
		}
		if _, err := a.Token(t.Context(), aliceToken, "127.0.0.1:2"); err != nil || time.Since(begin) > 0 {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		if _, err := a.Token(t.Context(), "one too many", "127.0.0.1:1"); !errors.Is(err, coded(wire.Unauthorized)) ||
			time.Since(begin) != guessInterval {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
	})
}

// The wrong tokens of an address count together, in whatever way they are sent.
func TestGuessesOverEveryWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFolder(t)
		f.writef("auth.yaml", "tokens: [{name: node, role: sidecar, sha256: %s}]", sumOf(nodeToken))
		a, log := f.open(ControlPlane)
		f.writef("peers", "%s", aliceToken)
		f.writef("auth.yaml", peersSection)
		peers, _ := f.open(Sidecar)
		f.writef("auth.yaml", peersSection+"tokens: []")
		both, _ := f.open(Sidecar)
		for range int64(maxGuessDelay/guessInterval) + freeGuesses {
			for _, of := range []*Access{a, peers, both} {
				of.guesses.note("192.0.2.1", time.Now()) // the address of httptest
			}
		}
		for name, h := range map[string]http.Handler{
			"HTTP":                   a.Authenticate(http.NotFoundHandler()),
			"peers":                  peers.AuthenticatePeers(nil, http.NotFoundHandler()),
			"peers and others":       both.AuthenticatePeers(nil, http.NotFoundHandler()),
			"peers, the right token": nil,
		} {
			token := guess(0)
			if h == nil {
				h, token = peers.AuthenticatePeers(nil, http.NotFoundHandler()), aliceToken
			}
			if got := as(h, token); got != http.StatusTooManyRequests {
				t.Errorf("%s: status %d", name, got)
			}
		}
		w := httptest.NewRecorder()
		_, err := a.Identify(asks("Bearer " + guess(1)))
		if a.Challenge(w, asks(), err); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "1" {
			t.Errorf("%d %v", w.Code, w.Header())
		}
		ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("authorization", "Bearer "+guess(2)))
		ctx = peer.NewContext(ctx, &peer.Peer{Addr: address("192.0.2.1:9")})
		if _, err := a.join(ctx); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("gRPC: %v", err)
		}
		if _, err := a.Token(t.Context(), guess(3), "192.0.2.1:10"); !errors.Is(err, coded(wire.RateLimited)) {
			t.Errorf("AUTH: %v", err)
		}
		if log.String() == "" {
			t.Error("nothing was logged")
		}
	})
}

type address string

func (address) Network() string  { return "tcp" }
func (a address) String() string { return string(a) }

func TestSuspectsAreBounded(t *testing.T) {
	var g guesses
	now := time.Now()
	for i := range maxSuspects + 100 {
		g.note(fmt.Sprint(i), now)
	}
	if len(g.until) > maxSuspects+1 {
		t.Errorf("%d addresses", len(g.until))
	}
	g.note("later", now.Add(time.Hour))
	if len(g.until) != 1 {
		t.Errorf("%d addresses after an hour", len(g.until))
	}
	for from, want := range map[string]string{
		"192.0.2.1:80": "192.0.2.1", "[::ffff:192.0.2.1]:80": "192.0.2.1", "[2001:db8::1:2]:80": "2001:db8::/64", "[fe80::1%eth0]:1": "fe80::/64",
		"@": "@", "127.0.0.1:80": "localhost", "127.1.2.3:80": "localhost", "[::1]:80": "localhost", "[::ffff:127.0.0.1]:80": "localhost",
	} {
		if got := suspect(from); got != want {
			t.Errorf("%s: %s, want %s", from, got, want)
		}
	}
}

func BenchmarkIdentify(b *testing.B) {
	f := newFolder(b)
	f.writef("auth.yaml", "tokens: [{name: app, sha256: %s}]", sumOf(aliceToken))
	a, _ := f.open(Sidecar)
	r := asks("Bearer " + aliceToken)
	for b.Loop() {
		if _, err := a.Identify(r); err != nil {
			b.Fatal(err)
		}
	}
}
