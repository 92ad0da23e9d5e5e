package scenarios

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-bus/sluice/bench/internal/load"
	"github.com/sluice-bus/sluice/bench/report"
	"github.com/sluice-bus/sluice/internal/launch"
)

// Fleet is sidecars and their control plane.
type Fleet struct {
	sidecars []*Sidecar
	plane    *launch.Program // nil: none
}

// unlimitedFleet starts sidecars on one store, without limits and without a control plane.
func (l *Lab) unlimitedFleet(ctx context.Context, n int) (*Fleet, error) {
	f := &Fleet{}
	for range n {
		sidecar, err := l.StartUnlimited(ctx)
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		f.sidecars = append(f.sidecars, sidecar)
	}
	return f, nil
}

func (f *Fleet) Publishing(p Params) load.Publishing { return f.sidecars[0].Publishing(p) }
func (f *Fleet) Consuming(p Params) load.Consuming   { return f.sidecars[0].Consuming(p) }

// Processes are those of the sidecars.
func (f *Fleet) Processes() (pids []int) {
	for _, s := range f.sidecars {
		pids = append(pids, s.PID())
	}
	return pids
}

// Appends are those of all sidecars.
func (f *Fleet) Appends(ctx context.Context) (n int64, took time.Duration, err error) {
	for _, s := range f.sidecars {
		appends, time, err := s.Appends(ctx)
		if err != nil {
			return 0, 0, err
		}
		n, took = n+appends, took+time
	}
	return n, took, nil
}

// Close stops all.
func (f *Fleet) Close() (err error) {
	for _, s := range f.sidecars {
		err = errors.Join(err, s.Close())
	}
	if f.plane != nil {
		err = errors.Join(err, f.plane.Stop())
	}
	return err
}

// publishTogether publishes what the plans say, all at once, and measures it.
func (l *Lab) publishTogether(ctx context.Context, f *Fleet, plans []load.Publishing) (*report.Round, error) {
	crowd := make([]*load.Publisher, 0, len(plans))
	defer func() {
		for _, publisher := range crowd {
			publisher.Close()
		}
	}()
	for i := range plans {
		publisher, err := load.NewPublisher(ctx, plans[i])
		if err != nil {
			return nil, err
		}
		crowd = append(crowd, publisher)
	}
	return l.measure(ctx, f, together(crowd))
}

// together is a load of several publishers at once.
func together(crowd []*load.Publisher) measured {
	return measured{
		done: func() (sum int64) {
			for _, publisher := range crowd {
				sum += publisher.Done()
			}
			return sum
		},
		run: func(ctx context.Context) (*load.Tally, time.Duration, error) {
			began, tallies := time.Now(), make([]*load.Tally, len(crowd))
			all, ctx := errgroup.WithContext(ctx)
			for i, publisher := range crowd {
				all.Go(func() (err error) {
					tallies[i], _, err = publisher.Run(ctx)
					return err
				})
			}
			err := all.Wait()
			return load.Sum(tallies), time.Since(began), err
		},
	}
}
