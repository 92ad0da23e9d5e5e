package access

import (
	"context"
)

// lasting is a long request that its identity must keep the right to.
type lasting struct {
	id           Identity
	do           Action
	topic, group string
	end          context.CancelCauseFunc
}

// While returns a context for a long request, which ends once its identity
// loses the right: its cause then is a *wire.Error. The caller must call the
// returned function in the end. Requests of peers are not ended.
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

// endLasting ends the requests whose identities have lost the right.
func (a *Access) endLasting() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for l := range a.lasting {
		a.checkLasting(l)
	}
}

// Named returns an identity of the file by name, for which the program itself
// acts: the first entry with that name. The error is a *wire.Error with
// unauthorized.
func (a *Access) Named(name string) (Identity, error) { return a.now.Load().byName(name) }
