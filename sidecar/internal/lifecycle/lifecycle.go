// Package lifecycle runs the parts of a program, and stops them in a written order under a
// deadline.
package lifecycle

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"
)

// Part is what stops at one time. Each of its fields may be missing.
type Part struct {
	// Run are functions that run until their context ends. An error before that stops all parts.
	Run []func(context.Context) error
	// Awaited says that the next part is stopped only once all of Run have returned.
	Awaited bool
	// Stop is called when the context of Run has ended. It waits for what is under way, until its
	// own context ends.
	Stop func(context.Context) error
}

// Deadline bounds the time in which parts stop.
type Deadline struct {
	After time.Duration
	// Passed is called when a stop takes longer.
	Passed func()
}

// Run runs all parts until ctx ends or one fails, and then stops them in their order. It returns
// once all have ended, with the errors of all.
func Run(ctx context.Context, deadline Deadline, parts ...Part) error {
	lasting := context.WithoutCancel(ctx) // stop ends the parts
	failed, fail := context.WithCancel(ctx)
	defer fail()
	running := make([]runner, len(parts))
	for i := len(parts) - 1; i >= 0; i-- { // what stops last is needed first
		running[i].start(lasting, parts[i].Run, fail)
	}
	<-failed.Done()
	return stop(lasting, deadline, parts, running)
}

func stop(ctx context.Context, deadline Deadline, parts []Part, running []runner) error {
	limited, cancel := context.WithTimeout(ctx, deadline.After)
	defer cancel()
	notLate := context.AfterFunc(limited, deadline.Passed)
	var errs []error
	for i, p := range parts {
		running[i].end()
		if p.Awaited {
			errs = append(errs, running[i].group.Wait())
		}
		if p.Stop != nil {
			errs = append(errs, p.Stop(limited))
		}
	}
	notLate()
	for i, p := range parts {
		if !p.Awaited {
			errs = append(errs, running[i].group.Wait())
		}
	}
	return errors.Join(errs...)
}

// runner runs the functions of a part.
type runner struct {
	group errgroup.Group
	end   context.CancelFunc
}

func (r *runner) start(ctx context.Context, run []func(context.Context) error, fail func()) {
	ctx, r.end = context.WithCancel(ctx)
	for _, f := range run {
		r.group.Go(func() error {
			err := f(ctx)
			if err != nil {
				fail()
			}
			return err
		})
	}
}
