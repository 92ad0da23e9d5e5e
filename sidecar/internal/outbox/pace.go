package outbox

import "sync"

// paces has how many events of a topic go into one call: as many as are allowed, fewer after a
// whole call was refused, and more again after a call was accepted.
type paces struct {
	mu    sync.Mutex
	width map[string]int // of topics below the full width
}

// allowed is how many events of a topic may go into a call that has room for most.
func (p *paces) allowed(topic string, most int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w, narrowed := p.width[topic]; narrowed {
		return min(w, most)
	}
	return most
}

// narrow sets the width to half of that of a refused call.
func (p *paces) narrow(topic string, had int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.width == nil {
		p.width = map[string]int{}
	}
	p.width[topic] = max(1, had/2)
}

// widen doubles the width after a call of that many events was accepted.
func (p *paces) widen(topic string, had, most int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w, narrowed := p.width[topic]
	switch {
	case !narrowed || had < w:
	case 2*w >= most:
		delete(p.width, topic)
	default:
		p.width[topic] = 2 * w
	}
}
