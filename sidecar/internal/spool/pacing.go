package spool

// pacing slows down what comes into a topic's spool while it is drained, so that it becomes empty
// within about twice the time that its events take, however fast new ones could come: partitions
// wait while more is left than the mark, which goes down by half of what is drained. Then each that
// waits may go on with one batch. So publishers wait for the store, as they do without a spool.
// While the store is away no append waits.
type pacing struct {
	mark int64         // 0: no append waits
	room chan struct{} // closed once the rest is at the mark; nil: no append waits
}

// moved lets waiting appends go on, if they may.
func (p *pacing) moved(left int64) {
	if p.room != nil && (p.mark == 0 || left <= p.mark) {
		close(p.room)
		p.room = nil
	}
}

// over ends the pacing.
func (p *pacing) over() {
	p.mark = 0
	p.moved(0)
}

// pacingSlack is what a drain lets in before anybody waits.
const pacingSlack = 1 << 20

// startPacing is the beginning of a drain; of one that goes on it does nothing.
func (a *account) startPacing(t *topic) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t.pacing.mark == 0 {
		t.pacing.mark = t.bytes + pacingSlack
	}
}

// pace lowers the topic's mark after that many bytes were drained.
func (a *account) pace(t *topic, bytes int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t.pacing.mark > 0 {
		t.pacing.mark = max(t.pacing.mark-bytes/2, 1)
	}
	t.pacing.moved(t.bytes)
}

// stopPacing is for when the store is away.
func (a *account) stopPacing() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for t := range a.spooling {
		t.pacing.over()
	}
}

// wait returns nil if the topic's spool may take more, else a channel that is
// closed when it may.
func (a *account) wait(t *topic) <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := &t.pacing
	if p.mark == 0 || t.bytes <= p.mark {
		return nil
	}
	if p.room == nil {
		p.room = make(chan struct{})
	}
	return p.room
}
