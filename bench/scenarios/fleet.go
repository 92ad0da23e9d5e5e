package scenarios

import (
	"context"
	"errors"
	"time"

	"github.com/sluice-bus/sluice/bench/internal/load"
	"github.com/sluice-bus/sluice/bench/internal/node"
)

// Fleet is sidecars and their control plane.
type Fleet struct {
	sidecars []*Sidecar
	plane    *node.Program // nil: none
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
