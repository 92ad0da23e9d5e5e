package catalog

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-bus/sluice/controlplane/internal/store"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
)

const (
	// MaxPoliciesBytes bounds the policies in force together, as JSON: they are kept in memory,
	// about three times.
	MaxPoliciesBytes = 32 << 20
	// maxLost is how many other commits may come first before a change fails.
	maxLost = 20
	// maxUnknown is how often a commit with an unknown result is sent.
	maxUnknown = 3
	// unknownWait is the pause in between, and lostWait the longest pause after a lost race.
	unknownWait = 100 * time.Millisecond
	lostWait    = 20 * time.Millisecond
	// retryAfter is the retry time in errors while the store is away.
	retryAfter = time.Second
)

// request is a requested change of the policies.
type request struct {
	put    []policy.Policy
	remove []string
	// action is the action of a put, unless that is created or updated; to is the version that a
	// rollback restores.
	action store.Action
	to     int64
	series bool // a new one begins
	// call returns the name of a policy in errors; "": it needs no name.
	call func(name string) string
}

// decide makes a request of the current policies, or refuses; nil: nothing is to be changed. commit
// may call it again with later policies.
type decide func(*State) (*request, error)

// commit makes one commit of a decided request, and returns the states before and after it, which are
// the same if nothing changes. A rehearsal stores nothing.
func (c *Catalog) commit(ctx context.Context, by Author, rehearsal bool, what decide) (before, after *State, err error) {
	if rehearsal {
		err = c.turns.Check(ctx, func(ctx context.Context) error {
			before, after, err = c.commitInTurn(ctx, by, true, what)
			return err
		})
		return before, after, err
	}
	err = c.turns.Change(ctx, func() error {
		before, after, err = c.commitInTurn(ctx, by, false, what)
		return err
	})
	return before, after, err
}

func (c *Catalog) commitInTurn(ctx context.Context, by Author, rehearsal bool, what decide) (before, after *State, _ error) {
	for range maxLost {
		if err := c.load(ctx); err != nil {
			return nil, nil, c.explain(err, false)
		}
		before := c.State()
		r, err := what(before)
		if r == nil || err != nil {
			return before, before, err
		}
		made, next, err := c.draft(before, by, r)
		if err == nil {
			err = c.holdToSchemas(ctx, r, next)
		}
		if err != nil || rehearsal {
			return before, next, err
		}
		if err := by.mayShorten(before, next); err != nil {
			return nil, nil, err
		}
		err = c.append(ctx, made)
		if errors.Is(err, store.ErrConflict) {
			if !c.wait(ctx, mathrand.N(lostWait)) {
				return nil, nil, ctx.Err()
			}
			continue
		}
		if err != nil {
			return nil, nil, c.explain(err, true)
		}
		c.put(next, noteOf(&made, func(ch *store.Change) schemas {
			now := c.history.schemas[ch.Name]
			if ch.Schema > now.last {
				now = now.after(ch.Schema, made.Revision, policy.DigestOf(next.Find(ch.Name).Policy.JSONSchema()))
			}
			return now
		}))
		c.note(&made)
		c.trim(ctx)
		return before, next, nil
	}
	e := wire.Errorf(wire.StoreUnavailable, "%d other changes came first; nothing was changed, try again", maxLost)
	e.RetryAfter = retryAfter
	return nil, nil, e
}

// draft makes the commit of a request, and the state that follows it.
func (c *Catalog) draft(now *State, by Author, r *request) (store.Commit, *State, error) {
	commit := store.Commit{
		Revision: now.Revision + 1, By: strings.ToValidUTF8(by.Name, "\uFFFD"), Reason: by.Reason, Token: rand.Text(),
		At: c.cfg.Now().UTC().Truncate(time.Millisecond),
	}
	if r.series {
		// A restored backup may lack the last series, so its number is the time.
		commit.Series = max(now.Series+1, commit.At.UnixMilli())
	}
	put := make([]Entry, len(r.put))
	for i := range r.put {
		p := &r.put[i]
		ch := store.Change{Name: p.Name, Version: c.history.lastVersion(p.Name) + 1, Action: store.Created, Policy: p.AppendJSON(nil), To: r.to}
		switch {
		case r.action != "":
			ch.Action = r.action
		case now.Find(p.Name) != nil:
			ch.Action = store.Updated
		}
		if text := p.JSONSchema(); text != "" {
			ch.Schema = c.history.schemas[p.Name].count(policy.DigestOf(text))
		}
		e, err := entryOf(&commit, &ch) // as it will be read from the store
		if err != nil {
			return store.Commit{}, nil, err
		}
		put[i] = *e
		commit.Changes = append(commit.Changes, ch)
	}
	for _, name := range r.remove {
		commit.Changes = append(commit.Changes, store.Change{Name: name, Version: c.history.lastVersion(name) + 1, Action: store.Deleted})
	}
	slices.SortFunc(commit.Changes, func(a, b store.Change) int { return strings.Compare(a.Name, b.Name) })
	next, err := now.with(commit.Revision, put, r.remove)
	if err != nil {
		return store.Commit{}, nil, r.refused(err)
	}
	if next.bytes > MaxPoliciesBytes && next.bytes > now.bytes {
		return store.Commit{}, nil, wire.Errorf(wire.PayloadTooLarge,
			"all policies together would have %d bytes; at most %d are kept: make schemas smaller, or remove policies", next.bytes, MaxPoliciesBytes)
	}
	next.Series = max(next.Series, commit.Series)
	return commit, next, nil
}

// maxNoted bounds the policies that a line of the log names.
const maxNoted = 20

// note logs a commit.
func (c *Catalog) note(made *store.Commit) {
	if len(made.Changes) == 0 {
		return // a new series, which its caller logs
	}
	var what []string
	for _, ch := range made.Changes[:min(len(made.Changes), maxNoted)] {
		what = append(what, fmt.Sprintf("%s %s (version %d)", ch.Action, ch.Name, ch.Version))
	}
	if more := len(made.Changes) - len(what); more > 0 {
		what = append(what, fmt.Sprintf("and %d more", more))
	}
	c.cfg.Logger.Info("policies changed", "by", made.By, "revision", made.Revision, "changes", strings.Join(what, ", "))
}

// append stores a commit. It sends the commit again while its result is unknown: the store
// recognises it by its token.
func (c *Catalog) append(ctx context.Context, commit store.Commit) error {
	err := c.cfg.Store.Append(ctx, commit)
	for n := 1; n < maxUnknown && errors.Is(err, store.ErrUnavailable) && c.wait(ctx, unknownWait); n++ {
		err = c.cfg.Store.Append(ctx, commit)
	}
	return err
}

// explain converts an error of the store for clients. unknown says that a commit may have been
// stored.
func (c *Catalog) explain(err error, unknown bool) error {
	switch {
	case errors.Is(err, store.ErrTooLarge):
		return wire.Errorf(wire.PayloadTooLarge, "%v", store.ErrTooLarge)
	case !errors.Is(err, store.ErrUnavailable):
		return err
	}
	c.cfg.Logger.Error("the policy store failed", "error", err)
	why := "the control plane's --store cannot be reached"
	switch {
	case errors.Is(err, syscall.ENOSPC):
		why = "no room is left on the disk of the control plane's --data-dir: make room there"
	case errors.Is(err, syscall.EROFS):
		why = "the disk of the control plane's --data-dir is read-only: make it writable"
	}
	e := wire.Errorf(wire.StoreUnavailable, "%s; nothing was changed, try again", why)
	if unknown {
		e.Msg = why + "; the change may have been made or not: read the policy before you try again"
	}
	e.RetryAfter = retryAfter
	return e
}

// refused renames the fields of a *wire.Error as in the request.
func (r *request) refused(err error) error {
	e := wire.AsError(err)
	if e.Code != wire.InvalidPolicy {
		return err
	}
	fields := slices.Clone(e.Fields)
	for i := range fields {
		name, field := r.locate(fields[i].Field)
		called := r.call(name)
		if called != "" && field != "" {
			called += "."
		}
		fields[i].Field = called + field
	}
	return invalid(fields)
}

// locate splits a field of policy.Snapshot.Change: policies[2].paused, of a policy in the request,
// or policies["name"].paused, of another one.
func (r *request) locate(field string) (name, rest string) {
	inside := strings.TrimPrefix(field, "policies[")
	at := strings.IndexByte(inside, ']') // no name has one
	if at < 0 {
		return "", field
	}
	rest = strings.TrimPrefix(inside[at+1:], ".")
	var place int
	if _, err := fmt.Sscanf(inside[:at], "%d", &place); err == nil {
		return r.put[place].Name, rest
	}
	return strings.Trim(inside[:at], `"`), rest
}

// invalid is the error of all bad fields; its message has them, too.
func invalid(fields []wire.FieldError) error {
	reasons := make([]string, len(fields))
	for i, f := range fields {
		reasons[i] = f.Field + ": " + f.Message
	}
	e := wire.Errorf(wire.InvalidPolicy, "%s", strings.Join(reasons, "; "))
	e.Fields = fields
	return e
}
