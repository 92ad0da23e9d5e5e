package group

import "sync"

// worker runs one function at a time, again whenever it was woken meanwhile,
// in a goroutine that exists only while there is something to do.
type worker struct {
	work func()

	mu      sync.Mutex
	running bool
	again   bool
	stopped bool
	idle    sync.WaitGroup
}

// wake makes work run soon. It never blocks and takes no lock but its own.
func (w *worker) wake() {
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

func (w *worker) run() {
	defer w.idle.Done()
	for {
		w.work()
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

// stop waits for the run under way; none follows. It must not be called from
// work.
func (w *worker) stop() {
	w.mu.Lock()
	w.stopped = true
	w.mu.Unlock()
	w.idle.Wait()
}
