package ws

import (
	"context"
	"sync"
	"time"
)

// unansweredPings is how many pings in a row a peer may leave unanswered.
const unansweredPings = 2

// keepAlive pings the peer of a connection on which nothing goes either way. While the peer answers
// it costs a timer, and no goroutine.
type keepAlive struct {
	socket *socket
	after  time.Duration // of silence, and for the answer
	ping   func(context.Context) error
	dead   func() // called if the peer does not answer

	ctx   context.Context
	mu    sync.Mutex // held while the timer's function runs
	timer *time.Timer
}

// start begins to watch the connection, until ctx ends. The caller calls stop.
func (k *keepAlive) start(ctx context.Context) {
	k.ctx = ctx
	k.mu.Lock()
	k.timer = time.AfterFunc(k.after, k.look)
	k.mu.Unlock()
}

// stop waits for a ping under way, which the end of ctx has ended.
func (k *keepAlive) stop() {
	k.mu.Lock()
	k.timer.Stop()
	k.mu.Unlock()
}

// look pings the peer if the connection was silent for long enough.
func (k *keepAlive) look() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ctx.Err() != nil {
		return
	}
	if left := k.after - k.socket.silence(); left > 0 {
		k.timer.Reset(left)
		return
	}
	for n := 0; !k.answers(); n++ {
		if k.ctx.Err() != nil {
			return
		}
		if n+1 == unansweredPings {
			k.dead()
			return
		}
	}
	k.timer.Reset(k.after)
}

// answers pings the peer, and reports whether it may be alive. A peer that is not read from, since
// it reads no replies or its last op goes on, cannot answer; other bounds apply to it.
func (k *keepAlive) answers() bool {
	if !k.socket.listening() {
		return true
	}
	ctx, cancel := context.WithTimeout(k.ctx, k.after)
	defer cancel()
	return k.ping(ctx) == nil || !k.socket.listening()
}
