// Package worker runs a function while there is work.
package worker

import "sync"

// Worker runs its function in one goroutine at a time. It runs it again if Wake was called
// meanwhile. The goroutine exists only while there is work.
type Worker struct {
	Work func() // set before the first Wake

	mu      sync.Mutex
	running bool
	again   bool
	stopped bool
	idle    sync.WaitGroup
}

// Wake makes Work run soon. It never blocks and takes no lock but its own.
func (w *Worker) Wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return
	}
	if w.running {
		w.again = true
		return
	}
	w.running = true
	w.idle.Add(1)
	go w.run()
}

func (w *Worker) run() {
	defer w.idle.Done()
	for {
		w.Work()
		w.mu.Lock()
		if w.stopped || !w.again {
			w.running = false
			w.mu.Unlock()
			return
		}
		w.again = false
		w.mu.Unlock()
	}
}

// Stop waits for the current run, and prevents further ones. It must not be called from Work.
func (w *Worker) Stop() {
	w.mu.Lock()
	w.stopped = true
	w.mu.Unlock()
	w.idle.Wait()
}
