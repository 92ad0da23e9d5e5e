package spool

// pacing slows down appends to a topic's spool during a drain, so that the spool becomes empty
// within about twice the time that its events take, at any rate of new events. Appends wait while
// more bytes are left than the mark, and the mark falls by half of the bytes drained. Then each
// waiting append may continue with one batch. So publishers wait for the store, as they do without
// a spool. While the store is away no append waits.
type pacing struct {
	mark int64         // 0: no append waits
	room chan struct{} // closed once the bytes left are at the mark; nil: no append waits
}

// moved wakes the waiting appends if they may continue.
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

// pacingSlack is how many bytes a drain admits before appends wait.
const pacingSlack = 1 << 20

// startPacing begins the pacing of a drain. It does nothing if that has begun already.
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

// stopPacing ends all pacing, since the store is away.
func (a *account) stopPacing() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for t := range a.spooling {
		t.pacing.over()
	}
}

// wait returns nil if the topic's spool may take more, or else a channel that is closed when it
// may.
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
