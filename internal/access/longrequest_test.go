package access

import (
	"context"
	"errors"
	"testing"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/require"
)

func TestWhile(t *testing.T) {
	f := newFolder(t)
	const both = "tokens: [{name: app, sha256: %s, replay: [%s]}]"
	f.writef("auth.yaml", both, sumOf(aliceToken), "orders")
	a, _ := f.open(Sidecar)
	id, err := a.Token(t.Context(), aliceToken, "")
	require.NoError(t, err)
	begin := func(who Identity) context.Context {
		ctx, end := a.While(context.WithValue(t.Context(), identityKey{}, who), Replay, "orders", "")
		t.Cleanup(end)
		return ctx
	}
	lasting, peers, over := begin(id), begin(anyPeer), begin(id)
	if ctx, end := a.While(over, Replay, "orders", ""); true {
		end()
		if len(a.changed) != 2 || ctx.Err() == nil {
			t.Errorf("%d are left, %v", len(a.changed), ctx.Err())
		}
	}
	f.writef("auth.yaml", both, sumOf(aliceToken), "orders, payments")
	if a.settle(); lasting.Err() != nil || peers.Err() != nil {
		t.Errorf("ended by a change that takes nothing away: %v, %v", context.Cause(lasting), context.Cause(peers))
	}
	f.writef("auth.yaml", both, sumOf(aliceToken), "payments")
	if a.settle(); !errors.Is(context.Cause(lasting), coded(wire.Forbidden)) || peers.Err() != nil {
		t.Errorf("%v, %v", context.Cause(lasting), context.Cause(peers))
	}
	f.writef("auth.yaml", "tokens: []")
	a.settle()
	if late := begin(id); !errors.Is(context.Cause(late), coded(wire.Unauthorized)) {
		t.Errorf("of one who is not there any more: %v", context.Cause(late))
	}
	var open *Access
	if ctx, end := open.While(t.Context(), Replay, "orders", ""); ctx.Err() != nil {
		t.Error("nobody is checked, and yet it ended")
	} else {
		end()
	}
}

func TestWhilePerson(t *testing.T) {
	f := newFolder(t)
	entry := func(role, more string) {
		f.writef("auth.yaml", "tokens: [{name: ann, sha256: %s, role: %s%s}]", sumOf(aliceToken), role, more)
	}
	entry("operator", ", topics: [orders.*]")
	a, _ := f.open(ControlPlane)
	for _, change := range []struct {
		what string
		make func()
		ends bool
	}{
		{"another entry", func() {
			f.writef("auth.yaml", "tokens: [{name: ann, sha256: %s, role: operator, topics: [orders.*]}, {name: bob, sha256: %s, role: viewer}]",
				sumOf(aliceToken), sumOf(nodeToken))
		}, false},
		{"other topics", func() { entry("operator", ", topics: [orders.a]") }, true},
		{"all topics", func() { entry("operator", "") }, true},
		{"another role", func() { entry("reader", "") }, true},
		{"no entry", func() { f.writef("auth.yaml", "tokens: []") }, true},
	} {
		id, err := a.Token(t.Context(), aliceToken, "")
		require.NoError(t, err)
		ctx, end := a.WhilePerson(t.Context(), id)
		change.make()
		if a.settle(); (ctx.Err() != nil) != change.ends {
			t.Errorf("%s: %v", change.what, context.Cause(ctx))
		}
		end()
	}
}

func TestNamed(t *testing.T) {
	f := newFolder(t)
	f.writef("auth.yaml", "tokens: [{name: app, sha256: %s, subscribe: [orders]}, {name: app, sha256: %s}]", sumOf(aliceToken),
		sumOf(nodeToken))
	a, _ := f.open(Sidecar)
	id, err := a.Named("app")
	if err != nil || id.May(Subscribe, "orders", "g") != nil || id.May(Subscribe, "other", "g") == nil {
		t.Fatalf("%+v, %v", id, err)
	}
	if _, err := a.Named("other"); !errors.Is(err, coded(wire.Unauthorized)) {
		t.Error(err)
	}
	f.writef("auth.yaml", "tokens: [{name: app, sha256: %s, subscribe: [other]}]", sumOf(nodeToken))
	a.settle()
	if now, err := a.Renew(&id); err != nil || now.May(Subscribe, "orders", "g") == nil || now.May(Subscribe, "other", "g") != nil {
		t.Errorf("%+v, %v", now, err)
	}
	f.writef("auth.yaml", "tokens: []")
	if a.settle(); true {
		if _, err := a.Renew(&id); !errors.Is(err, coded(wire.Unauthorized)) {
			t.Error(err)
		}
	}
}
