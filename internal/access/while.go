package access

import (
	"context"
)

// lasting is something under way that its identity must have a right to.
type lasting struct {
	id           Identity
	do           Action
	topic, group string
	end          context.CancelCauseFunc
}

// While returns a context for something long, which ends once who asked for it
// may not do that any more: its cause then is a *wire.Error. The function that it
// returns must be called in the end. Peers are let finish.
func (a *Access) While(ctx context.Context, do Action, topic, group string) (context.Context, context.CancelFunc) {
	id := a.From(ctx)
	if a == nil || id.may == &peerGrant {
		return ctx, func() {}
	}
	ctx, end := context.WithCancelCause(ctx)
	l := &lasting{id: id, do: do, topic: topic, group: group, end: end}
	a.mu.Lock()
	a.lasting[l] = struct{}{}
	a.mu.Unlock()
	a.checkLasting(l) // a change before it was known
	return ctx, func() {
		a.mu.Lock()
		delete(a.lasting, l)
		a.mu.Unlock()
		end(nil)
	}
}

func (a *Access) checkLasting(l *lasting) {
	now, err := a.Renew(&l.id)
	if err == nil {
		err = now.May(l.do, l.topic, l.group)
	}
	if err != nil {
		l.end(err)
	}
}

// endLasting ends what nobody has a right to any more.
func (a *Access) endLasting() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for l := range a.lasting {
		a.checkLasting(l)
	}
}

// Named is somebody of the file by name, whom the program itself acts for: the
// first entry with it. The error is a *wire.Error with unauthorized.
func (a *Access) Named(name string) (Identity, error) { return a.now.Load().byName(name) }
