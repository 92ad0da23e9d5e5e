package exactlyonce

import (
	"sync"
	"time"
)

// maxWatched bounds the claims of others that a handler remembers. Where there are more, some are
// watched from the beginning again.
const maxWatched = 10_000

// watch remembers since when claims of others have not moved. Only this process's monotonic clock
// counts, from when it saw a beat first: a claim's owner counts from before it wrote that, so it
// gives up earlier.
type watch struct {
	mu   sync.Mutex
	seen map[string]observation // by id
}

type observation struct {
	slot  Slot
	owner string
	beat  int64
	since time.Time
}

// look returns how long this process must still leave the claim alone. now is a time after the
// claim was read.
func (w *watch) look(id string, r Record, now time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	s, ok := w.seen[id]
	if !ok || s.slot != r.Slot || s.owner != r.Owner || s.beat != r.Beat {
		if !ok && len(w.seen) >= maxWatched {
			for other := range w.seen {
				delete(w.seen, other)
				break
			}
		}
		s = observation{r.Slot, r.Owner, r.Beat, now}
		if w.seen == nil {
			w.seen = map[string]observation{}
		}
		w.seen[id] = s
	}
	return r.Lease - now.Sub(s.since)
}

func (w *watch) forget(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.seen, id)
}
