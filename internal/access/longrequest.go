package access

import "context"

// While returns a context for a long request, which ends once its identity loses the right: its
// cause then is a *wire.Error. The caller must call the returned function in the end. Requests of
// peers are not ended.
func (a *Access) While(ctx context.Context, do Action, topic, group string) (context.Context, context.CancelFunc) {
	id := a.From(ctx)
	if !a.Authenticates() || id.may == &peerGrant {
		return ctx, func() {}
	}
	ctx, end := context.WithCancelCause(ctx)
	check := func() {
		now, err := a.Renew(&id)
		if err == nil {
			err = now.May(do, topic, group)
		}
		if err != nil {
			end(err)
		}
	}
	stop := a.onChange(check)
	check() // for a change before onChange
	return ctx, func() {
		stop()
		end(nil)
	}
}

// Named returns an identity of the file by name, for which the program itself acts: the first entry
// with that name. The error is a *wire.Error with unauthorized.
func (a *Access) Named(name string) (Identity, error) { return a.now.Load().byName(name) }
