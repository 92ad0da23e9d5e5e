package exactlyonce

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Defaults of Options.
const (
	DefaultTTL     = 7 * 24 * time.Hour
	DefaultLease   = 30 * time.Second
	DefaultTimeout = 10 * time.Second
)

const (
	maxScopeBytes = 512
	// minLease leaves time for an extension to get through.
	minLease = 50 * time.Millisecond
	// The lease is extended every lease/extendPart, and given up lease/guardPart before others may
	// take it.
	extendPart = 3
	guardPart  = 10
	// keepLonger is for how much longer than a mark the claims before it are kept, at least: the
	// records of a chain must expire from its end.
	keepLonger = time.Hour
)

// Options say how a Handler works.
type Options struct {
	// Scope is the namespace in which an id is unique, usually a topic and a group: see [Scope]. It
	// has 1 to 512 bytes of visible characters.
	Scope string
	// TTL is for how long it is remembered that an effect has run, from its end. It must be longer
	// than the time after which an event can still come again: redelivery, replay, a group's cursor
	// set back. 0: DefaultTTL.
	TTL time.Duration
	// Lease is for how long a claim holds without being extended; it is extended while its effect
	// runs. After a crash no other process runs the effect for that long. 0: DefaultLease.
	Lease time.Duration
	// Wait is how long Do waits for an effect that is in progress elsewhere, before it returns
	// ErrInProgress. 0: until its context ends; NoWait: not at all.
	Wait time.Duration
	// Timeout is how long Do tries to reach a store that fails: once for the claim, and once for
	// the mark. 0: DefaultTimeout. DoTx tries to claim until its context ends: where a process died
	// within its transaction, the server keeps others from the mark's place until it gives that up,
	// on MongoDB after 60 s.
	Timeout time.Duration
}

// NoWait is for Options.Wait: a claim of another process is ErrInProgress at once.
const NoWait time.Duration = -1

// Scope is the scope of a consumer group's work on a topic.
func Scope(topic, group string) string { return group + "/" + topic }

func (o Options) withDefaults() Options {
	o.TTL = cmp.Or(o.TTL, DefaultTTL)
	o.Lease = cmp.Or(o.Lease, DefaultLease)
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	return o
}

func (o Options) validate() error {
	var errs []error
	if err := checkScope(o.Scope); err != nil {
		errs = append(errs, err)
	}
	if o.Lease < minLease {
		errs = append(errs, fmt.Errorf("the option Lease is %v; at least %v is allowed", o.Lease, minLease))
	}
	if o.TTL < o.Lease {
		errs = append(errs, fmt.Errorf("the option TTL is %v; at least the lease (%v) is allowed", o.TTL, o.Lease))
	}
	if o.Wait < NoWait {
		errs = append(errs, fmt.Errorf("the option Wait is %v; NoWait, 0 (until the context ends) or more is allowed", o.Wait))
	}
	if o.Timeout < 0 {
		errs = append(errs, fmt.Errorf("the option Timeout is %v; 0 (the default) or more is allowed", o.Timeout))
	}
	return errors.Join(errs...)
}

func checkScope(scope string) error {
	invisible := func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsGraphic(r) }
	switch {
	case scope == "":
		return errors.New("the option Scope is missing")
	case len(scope) > maxScopeBytes:
		return fmt.Errorf("the option Scope is %d bytes long; at most %d are allowed", len(scope), maxScopeBytes)
	case !utf8.ValidString(scope) || strings.ContainsFunc(scope, invisible):
		return fmt.Errorf("the option Scope %q holds a character that is not allowed; allowed are visible characters without spaces", scope)
	}
	return nil
}
