package access

import (
	"context"
	"slices"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// While returns a context for a long request, which ends once its identity loses the right: its
// cause then is a *wire.Error. The caller must call the returned function in the end. Requests of
// peers are not ended, and those of people for whom the control plane asks end there.
func (a *Access) While(ctx context.Context, do Action, topic, group string) (context.Context, context.CancelFunc) {
	id := a.From(ctx)
	if !a.Authenticates() || id.may == &peerGrant || id.Forwarded {
		return ctx, func() {}
	}
	return a.while(ctx, &id, func(now *Identity) error { return now.May(do, topic, group) })
}

// WhilePerson returns a context for a request of a person to the control plane, which ends once the
// person is not known any more, or has another role or other topics. The caller must call the returned
// function in the end.
func (a *Access) WhilePerson(ctx context.Context, id Identity) (context.Context, context.CancelFunc) {
	if !a.Authenticates() {
		return ctx, func() {}
	}
	return a.while(ctx, &id, func(now *Identity) error {
		if now.Role != id.Role || !slices.Equal(now.may.only, id.may.only) {
			return wire.Errorf(wire.Forbidden, "the rights of %s have changed: ask again", shown(id.Name))
		}
		return nil
	})
}

func (a *Access) while(ctx context.Context, id *Identity, may func(now *Identity) error) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancelCause(ctx)
	check := func() {
		now, err := a.Renew(id)
		if err == nil {
			err = may(now)
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
