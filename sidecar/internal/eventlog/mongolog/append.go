package mongolog

import (
	"context"
	"errors"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// Append implements eventlog.Appender. Scheduled events and others are stored run by run, in the
// order of the batch.
func (l *Log) Append(ctx context.Context, name string, p int, batch []*eventlog.Record) []eventlog.Outcome {
	out := make([]eventlog.Outcome, len(batch))
	var failed error
	for start := 0; start < len(batch); {
		end, later := start+1, batch[start].DeliverAt != 0
		for end < len(batch) && (batch[end].DeliverAt != 0) == later {
			end++
		}
		switch some := batch[start:end]; {
		case failed != nil: // events that may be stored later must come before these
			for i, r := range some {
				out[start+i].Err, r.FreshID = failed, false
			}
		case later:
			l.scheduled.Append(ctx, name, some, out[start:end])
			for i, r := range some {
				r.FreshID = r.FreshID && out[start+i].Err == nil
			}
		default:
			l.appends.Append(ctx, name, p, some, out[start:end])
		}
		for ; start < end; start++ {
			if err := out[start].Err; errors.Is(err, eventlog.ErrUnavailable) {
				failed = err
			}
		}
	}
	return out
}
