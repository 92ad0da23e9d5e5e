package outbox

import (
	"context"
	"sync"
	"time"
)

// swept is the result of a sweep.
type swept struct {
	marked int // documents with a new mark: done, an error, or a failed try
	took   time.Duration
}

// sweep goes once through all pending documents, in order. One goroutine reads the next page while
// another page is published and a third is marked. So at most four pages are in memory, and nothing
// is read again before it is marked.
func (d *Drainer) sweep(ctx context.Context) (swept, error) {
	began := d.cfg.Clock.Now()
	d.rests.begin(began)
	defer func() { d.state.observe("topics", d.rests.missing()) }()
	shards := d.usable()
	if shards == 0 {
		d.pending.Store(0)
		return swept{}, nil
	}
	r := reader{d: d, shards: shards, began: began, pages: make(chan []*entry)}
	marks := make(chan []mark)

	var stages sync.WaitGroup
	var readErr error
	stages.Go(func() {
		defer close(r.pages)
		readErr = r.read(ctx)
	})
	stages.Go(func() {
		defer close(marks)
		for page := range r.pages {
			marks <- d.publishPage(ctx, page)
		}
	})
	marked := 0
	for m := range marks {
		marked += d.mark(m)
	}
	stages.Wait()
	d.pending.Store(int64(max(r.found-marked, 0)))
	return swept{marked: marked, took: d.cfg.Clock.Since(began)}, readErr
}
