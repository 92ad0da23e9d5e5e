package consume

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/sidecar/internal/group"
)

func TestLeaseRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLeaser(rapid.String().Draw(t, "node"))
		topic, name := rapid.String().Draw(t, "topic"), rapid.String().Draw(t, "group")
		d := group.Lease{Partition: rapid.IntRange(0, 1<<20).Draw(t, "partition"), Seq: rapid.Uint64().Draw(t, "seq"),
			Number: rapid.Uint64().Draw(t, "number")}
		token := string(l.appendLease(nil, topic, name, d))
		got, node, ours, ok := l.readLease(topic, name, token)
		if len(token) <= maxLeaseBytes && (got != d || node != l.node || !ours || !ok) {
			t.Errorf("%+v became %+v of %q, ours %t, ok %t", d, got, node, ours, ok)
		}
		if _, _, _, ok := l.readLease(topic, name+"x", token); ok {
			t.Errorf("a lease of group %q is one of %q", name, name+"x")
		}
		other := newLeaser(l.node)
		if _, _, ours, _ := other.readLease(topic, name, token); ours {
			t.Error("a lease of one process is one of another")
		}
		at := rapid.IntRange(0, len(token)-1).Draw(t, "at")
		changed := token[:at] + string(rapid.SampledFrom([]byte("AZaz09-_=~")).Draw(t, "to")) + token[at+1:]
		if _, _, _, ok := l.readLease(topic, name, changed); ok && changed != token {
			t.Errorf("%s reads like %s", changed, token)
		}
	})
}

func FuzzReadLease(f *testing.F) {
	l := newLeaser("node")
	token := string(l.appendLease(nil, "t", "g", group.Lease{Partition: 3, Seq: 1 << 40, Number: 7}))
	for _, seed := range []string{token, "", strings.Repeat("A", 2000), token + "A"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, token string) {
		d, node, ours, ok := l.readLease("t", "g", token)
		if !ok {
			return
		}
		giver := leaser{node: node}
		giver.process = l.process
		if again := string(giver.appendLease(nil, "t", "g", d)); ours && again != token {
			t.Errorf("%q reads like %q", token, again)
		}
	})
}
