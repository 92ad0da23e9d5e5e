package simulation

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sluice-bus/sluice/controlplane/internal/catalog"
	"github.com/sluice-bus/sluice/controlplane/internal/store"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// change is one that somebody has asked for.
type change struct {
	by           string // names it in the chain
	life         string // that was asked
	name         string // of the policy
	action       store.Action
	began, ended int   // in the order; ended 0: its process was killed meanwhile
	on           int64 // the version that it may replace; -1: any
	version      int64 // that it made, where the answer says so
	err          error
}

// unknown reports whether the answer leaves open what has become of the change.
func (c *change) unknown() bool {
	e := wire.AsError(c.err)
	return c.ended == 0 || c.err != nil && (e.Code == wire.Internal || strings.Contains(e.Msg, "may have been made or not"))
}

var errStale = errors.New("another version is there")

// write makes changes one after the other, wherever a control plane answers.
func (r *run) write(who int, plan writerPlan) {
	d := newDice(plan.seed, 3)
	for n := range plan.changes {
		time.Sleep(time.Duration(d.Int64N(int64(2 * plan.every))))
		l, c := r.planes[(plan.plane+n*d.IntN(2))%len(r.planes)].running()
		if c == nil {
			continue
		}
		x := &change{by: fmt.Sprintf("w%d-%d", who, n), life: l.name, name: fmt.Sprintf("topic%d", d.IntN(3)), on: -1}
		if e := c.State().Find(x.name); d.chance(50) {
			if x.on = 0; e != nil {
				x.on = e.Version
			}
		}
		permits := func(current int64) error {
			if x.on >= 0 && current != x.on {
				return errStale
			}
			return nil
		}
		r.mu.Lock()
		r.order++
		x.began = r.order
		r.changes = append(r.changes, x)
		r.mu.Unlock()
		ctx, cancel := context.WithTimeout(l.ctx, 10*time.Second)
		switch k := d.IntN(10); {
		case k < 7:
			x.action = store.Updated
			done, err := c.Put(ctx, catalog.Author{Name: x.by}, policyOf(x.name, who*1000+n), permits, false)
			if x.err = err; err == nil {
				x.version = done.Changes[0].To.Version
			}
		case k < 9:
			x.action = store.Deleted
			_, x.err = c.Delete(ctx, catalog.Author{Name: x.by}, x.name, permits, false)
		default:
			x.action = store.RolledBack
			entry, err := c.Rollback(ctx, catalog.Author{Name: x.by}, x.name, 1, permits)
			x.version, x.err = entry.Version, err
		}
		if ctx.Err() != nil && x.err != nil {
			x.err = wire.Errorf(wire.Internal, "%v", x.err) // the writer has given it up
		}
		cancel()
		r.mu.Lock()
		if !r.dead[l.name] {
			r.order++
			x.ended = r.order
		}
		r.mu.Unlock()
	}
}

// check holds what was seen against the promises.
func (r *run) check() {
	type made struct {
		commit store.Commit
		change store.Change
	}
	versions, byWriter := map[string]int64{}, map[string]made{}
	for i, c := range r.final {
		if c.Revision != int64(i+1) {
			r.problem("revision %d is at place %d", c.Revision, i+1)
		}
		if _, twice := byWriter[c.By]; twice {
			r.problem("the change %s was made twice", c.By)
		}
		for _, ch := range c.Changes {
			if ch.Version != versions[ch.Name]+1 {
				r.problem("revision %d makes version %d of %s after %d", c.Revision, ch.Version, ch.Name, versions[ch.Name])
			}
			versions[ch.Name] = ch.Version
			byWriter[c.By] = made{c, ch}
		}
	}
	highest := map[int]int64{} // by the order in which changes ended, the revision
	for _, x := range r.changes {
		m, there := byWriter[x.by]
		switch {
		case x.unknown():
		case x.err == nil && !there:
			r.problem("%s of %s was answered OK by %s and is not there", x.by, x.name, x.life)
		case x.err != nil && there:
			r.problem("%s of %s was refused by %s (%v) and is revision %d", x.by, x.name, x.life, x.err, m.commit.Revision)
		}
		if !there {
			continue
		}
		if x.err == nil && x.version > 0 && x.version != m.change.Version {
			r.problem("%s was said to be version %d of %s and is %d", x.by, x.version, x.name, m.change.Version)
		}
		if x.on > 0 && m.change.Version != x.on+1 {
			r.problem("%s may replace version %d of %s alone and is version %d", x.by, x.on, x.name, m.change.Version)
		}
		if x.err == nil && x.ended > 0 {
			highest[x.ended] = m.commit.Revision
		}
	}
	for _, x := range r.changes {
		m, there := byWriter[x.by]
		for ended, revision := range highest {
			if there && ended < x.began && revision > m.commit.Revision {
				r.problem("%s is revision %d, below %d, which was answered before it was asked for", x.by, m.commit.Revision, revision)
			}
		}
	}
	documents := map[string]string{}
	for _, d := range r.present {
		documents[d.Self] = string(d.Doc)
	}
	for _, l := range r.told {
		if doc, there := documents[l.name]; !l.gone.IsZero() && there && doc != "-1" {
			r.problem("%s has left, and its document %s is there", l.name, doc)
		}
		if r.dead[l.name] && documents[l.name] != "" {
			r.problem("%s is dead, and its document is there", l.name)
		}
	}
}
