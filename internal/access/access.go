package access

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// pollEvery is the interval at which the files are read. A change acts once two reads in a row have
// found it, so within two polls, and files that are still being written do not act.
const pollEvery = time.Second

// Access is the state in force of a file of --auth-config. Its methods are safe for concurrent use,
// and for a nil *Access, which stands for a program without such a file.
type Access struct {
	path     string
	program  Program
	open     bool // no client needs a token or a certificate; it does not change
	bound    bool // each sidecar's credential must name its node ids; it does not change once Run is called
	log      *slog.Logger
	every    time.Duration
	reread   pause.Wake // set by Reread
	now      atomic.Pointer[rules]
	logLimit *rate.Limiter // of lines about attempts that were refused
	guesses  guesses

	peerCame atomic.Bool // with a token of the peers, since the program started

	mu      sync.Mutex
	changed map[*func()]struct{} // is called after each change

	// The state of Run between polls.
	decided digest // of the last state that was taken or refused
	pending digest // what the last look found, where it differs
	trouble string // why the last look read nothing, so that it is told once

	// The state of the issuer's keys at jwks_url.
	fetchedAt   time.Time
	fetchFailed bool

	expires atomic.Int64 // the earliest end of an identity that came in, in nanoseconds since the epoch; 0 for none
}

// Open reads a file for a program and puts it in force. An unreadable file is an error, and so is
// an invalid one: a *FileError with all mistakes. Call [Access.Run] to follow the file's changes.
func Open(path string, program Program, log *slog.Logger) (*Access, error) {
	s, err := read(path, program)
	if err != nil {
		return nil, fmt.Errorf("read the authorization file: %w", err)
	}
	r, err := build(s, program, log)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err := r.checkBound(); err != nil {
		log.Warn("a credential may join as any sidecar of this machine", "file", path, "error", err)
	}
	a := &Access{
		path: path, program: program, open: !r.authenticates, log: log, every: pollEvery, reread: pause.NewWake(),
		logLimit: rate.NewLimiter(1, 10), changed: make(map[*func()]struct{}), decided: s.sum, pending: s.sum,
	}
	a.now.Store(r)
	a.fetchKeys(context.Background())
	return a, nil
}

// Run follows the files until the context ends, and returns nil then. If a change is invalid or a
// file cannot be read, Run logs each mistake, and the last valid state stays in force.
func (a *Access) Run(ctx context.Context) error {
	if a == nil {
		<-ctx.Done()
		return nil
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(a.every):
		case <-a.reread:
			a.look() // what the next look finds again counts
			a.fetchedAt = time.Time{}
		}
		a.look()
		a.fetchKeys(ctx)
		if at := a.expires.Load(); at != 0 && time.Now().UnixNano() > at {
			a.expires.Store(0) // identities that are still valid are noted again
			a.tellChange()
		}
	}
}

// Reread makes Run read the files at once, and fetch the issuer's keys.
func (a *Access) Reread() {
	if a != nil {
		a.reread.Set()
	}
}

// Authenticates reports whether a client needs a token or a certificate. Where it does not, every
// client may do everything.
func (a *Access) Authenticates() bool { return a != nil && !a.open }

// ControlPlane says how a sidecar speaks to its control plane.
func (a *Access) ControlPlane() ClientConfig {
	if a == nil {
		return ClientConfig{}
	}
	return a.now.Load().controlPlane.in(filepath.Dir(a.path))
}

// Peers says how a sidecar speaks to the others.
func (a *Access) Peers() ClientConfig {
	if a == nil {
		return ClientConfig{}
	}
	return a.now.Load().peers.in(filepath.Dir(a.path))
}

// OnChange makes Run call f after each change that is in force. f must not block.
func (a *Access) OnChange(f func()) {
	if a != nil {
		a.onChange(f)
	}
}

// onChange makes Run call f after each change, until stop is called; one more call may be under way
// then.
func (a *Access) onChange(f func()) (stop func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.changed[&f] = struct{}{}
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.changed, &f)
	}
}

func (a *Access) look() {
	s, err := read(a.path, a.program)
	if err != nil {
		a.pending = a.decided
		if err.Error() != a.trouble {
			a.trouble = err.Error()
			a.log.Warn("the authorization file cannot be read; its last valid version stays in force", "file", a.path, "error", err)
		}
		return
	}
	a.trouble = ""
	if s.sum != a.pending {
		a.pending = s.sum
		return
	}
	if s.sum != a.decided {
		a.decided = s.sum
		a.take(s)
	}
}

func (a *Access) take(s *source) {
	r, err := build(s, a.program, a.log)
	if err == nil {
		err = a.now.Load().mayBecome(r)
	}
	if err == nil && a.bound {
		err = r.checkBound()
	}
	if bad, ok := errors.AsType[*FileError](err); ok {
		for _, problem := range bad.Problems {
			a.log.Error("the changed authorization file is invalid; its last valid version stays in force", "file", a.path, "problem", problem)
		}
		return
	}
	for d, h := range a.now.Load().tokens {
		if again := r.tokens[d]; again != nil {
			again.used.Store(h.used.Load())
		}
	}
	if was := a.now.Load().jwt; r.jwt != nil && was != nil && r.jwt.section.keysURL != "" && r.jwt.section.keysURL == was.section.keysURL {
		r.jwt.keys = was.keys
	} else {
		a.fetchedAt = time.Time{}
	}
	if a.bound {
		a.warnOfStores(r)
	}
	a.log.Info("the authorization file has changed", "file", a.path, "tokens", len(r.tokens), "certs", len(r.certs))
	a.enforce(r)
}

// mayBecome refuses changes that only a restart can make.
func (r *rules) mayBecome(next *rules) error {
	switch {
	case (r.tls == nil) != (next.tls == nil):
		return &FileError{[]string{"tls: it cannot be added or removed while the program runs; restart it"}}
	case r.authenticates != next.authenticates:
		return &FileError{[]string{"tokens, certs, jwt: the first or the last of them cannot come or go while the program runs; restart it"}}
	case r.controlPlane != next.controlPlane || r.peers != next.peers || r.forward != next.forward:
		return &FileError{[]string{"control_plane, peers: they cannot change while the program runs; restart it"}}
	}
	return nil
}

// enforce puts rules in force.
func (a *Access) enforce(r *rules) {
	a.now.Store(r)
	a.tellChange()
}

// tellChange ends, among others, the requests and connections that have lost their rights.
func (a *Access) tellChange() {
	a.mu.Lock()
	changed := slices.Collect(maps.Keys(a.changed))
	a.mu.Unlock()
	for _, f := range changed {
		(*f)()
	}
}

// Token finds the identity of a token that came from an address; without authentication every
// client has the same. The error is a *wire.Error with unauthorized, which is delayed more for each
// wrong token of the address, or rate_limited.
func (a *Access) Token(ctx context.Context, token, from string) (Identity, error) {
	if !a.Authenticates() {
		return everybody, nil
	}
	id, err := a.byToken(ctx, token, from)
	if err != nil {
		a.noteRefused(from, err)
	}
	return id, err
}

// byToken finds the identity of a token, and slows down guesses.
func (a *Access) byToken(ctx context.Context, token, from string) (Identity, error) {
	d, r := digestOf(token), a.now.Load()
	id, err := r.byToken(d)
	if err == nil && id.entry.used.Load() {
		return id, nil
	}
	if err != nil && r.jwt != nil && isJWT(token) {
		// Nobody guesses a signature, so the wrong tokens of others at the address do not count for a valid one.
		var forged bool
		if id, forged, err = r.byJWT(token, d); !forged {
			a.noteExpiry(&id)
			return id, err
		}
	}
	if tooMany := a.guesses.check(from); tooMany != nil {
		return Identity{}, tooMany
	}
	if err != nil {
		a.guesses.failed(ctx, from)
		return Identity{}, err
	}
	id.entry.used.Store(true)
	return id, nil
}

// Failures counts the wrong tokens so far, and the tokens that were not checked because their
// address had sent too many wrong ones.
func (a *Access) Failures() (refused, unseen int64) {
	if a == nil {
		return 0, 0
	}
	return a.guesses.failures()
}

// Renew returns the current identity of a client that has authenticated before. It is id while
// nothing has changed, and costs a comparison. The error says that the token, or the certificate's
// authority, is not in the files any more, or that a JSON Web Token has expired.
func (a *Access) Renew(id *Identity) (*Identity, error) {
	if !a.Authenticates() || id.Forwarded { // whose rights the control plane watches
		return id, nil
	}
	r := a.now.Load()
	if id.rules == r && !id.expired() {
		a.noteExpiry(id)
		return id, nil
	}
	now, err := Identity{}, error(errNobody())
	switch {
	case id.may == nil:
	case id.named:
		now, err = r.byName(id.Name)
	case id.cert != nil:
		now, err = r.byCertificate(id.cert)
	case id.jwt != "" && r.jwt != nil:
		now, _, err = r.byJWT(id.jwt, id.digest)
	default:
		now, err = r.byToken(id.digest)
	}
	if err != nil {
		return nil, err
	}
	a.noteExpiry(&now)
	return &now, nil
}

// identify finds the identity of a client from the values of Authorization and the state of the
// connection. A token comes before a certificate.
func (a *Access) identify(ctx context.Context, authorization []string, cs *tls.ConnectionState, from string) (Identity, error) {
	if len(authorization) == 0 {
		return a.now.Load().byCertificate(cs)
	}
	token, err := bearer(authorization)
	if err != nil {
		return Identity{}, err
	}
	return a.byToken(ctx, token, from)
}

// noteRefused logs a refused request. It leaves out some when there are many.
func (a *Access) noteRefused(from string, err error) {
	if a.logLimit.Allow() {
		a.log.Warn("access refused", "from", from, "reason", wire.AsError(err).Msg)
	}
}
