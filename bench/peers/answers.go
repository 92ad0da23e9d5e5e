package main

import "github.com/sluice-bus/sluice/bench/internal/load"

// answers waits for the answers to what a carrier has sent, in order. A is what a client's asynchronous publish returns.
type answers[A any] struct {
	sent  chan sent[A]
	ended chan struct{}
}

// sent is a request without its answer yet.
type sent[A any] struct {
	slot *load.Slot
	each []A
}

// newAnswers is for at most depth requests at a time. Await waits for the answer to one message.
func newAnswers[A any](depth int, await func(A) error) *answers[A] {
	a := &answers[A]{sent: make(chan sent[A], depth), ended: make(chan struct{})}
	go func() {
		defer close(a.ended)
		for s := range a.sent {
			var err error
			for _, one := range s.each {
				if refused := await(one); refused != nil {
					err = refused
				}
			}
			s.slot.Answered(err)
		}
	}()
	return a
}

// wait returns once all is answered. Nothing may be sent from then on.
func (a *answers[A]) wait() {
	if a.sent != nil {
		close(a.sent)
		a.sent = nil
	}
	<-a.ended
}
