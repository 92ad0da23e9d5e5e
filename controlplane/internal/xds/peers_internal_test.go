package xds

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/sluice-bus/sluice/controlplane/internal/fleet"
	"github.com/sluice-bus/sluice/test/require"
)

func TestReachable(t *testing.T) {
	tcp := &net.TCPAddr{IP: net.IPv4(10, 1, 2, 3), Port: 5}
	for _, test := range []struct {
		address string
		from    net.Addr
		want    string
	}{
		{"10.0.0.1:8083", tcp, "10.0.0.1:8083"},
		{"host:8083", tcp, "host:8083"},
		{"0.0.0.0:8083", tcp, "10.1.2.3:8083"},
		{"[::]:8083", tcp, "10.1.2.3:8083"},
		{":8083", tcp, "10.1.2.3:8083"},
		{"0.0.0.0:8083", &net.UnixAddr{Name: "x"}, "0.0.0.0:8083"},
		{"unix:/x", tcp, "unix:/x"},
		{"", nil, ""},
	} {
		if got := reachable(test.address, test.from); got != test.want {
			t.Errorf("%q from %v: got %q, want %q", test.address, test.from, got, test.want)
		}
	}
}

// A thousand sidecars that join at once are told of each other bit by bit, and in the end of all.
func TestPeersArePaced(t *testing.T) {
	const sidecars = 1000
	var nodes []fleet.Node
	for i := range sidecars {
		nodes = append(nodes, fleet.Node{
			ID: fmt.Sprintf("node-%04d", i), Instance: strings.Repeat("i", 36), StoreID: strings.Repeat("s", 36), Address: "10.0.0.1:8083",
		})
	}
	p := newPeers()
	now := time.Unix(0, 0)
	start, sent := now, 0
	for {
		before := p.cache.GetResources()
		all, err := p.replace(nodes, sidecars, now)
		require.NoError(t, err)
		once := 0
		for name, r := range p.cache.GetResources() {
			if before[name] == nil {
				once += sidecars * proto.Size(r)
			}
		}
		if most := 2 * peersAtOnce; once > most { // the last one may be too much
			t.Fatalf("%d bytes at once, more than %d", once, most)
		}
		sent += once
		if all {
			break
		}
		now = now.Add(time.Second)
	}
	took := now.Sub(start)
	if least := time.Duration(sent-2*peersAtOnce) * time.Second / peersPerSecond; took < least || took > least+30*time.Second {
		t.Errorf("%d bytes took %v; want a little more than %v", sent, took, least)
	}
	if n := len(p.cache.GetResources()); n != peerGroups {
		t.Errorf("%d resources; want %d", n, peerGroups)
	}

	// One that leaves then is told of within a second.
	now = now.Add(time.Minute)
	if all, err := p.replace(nodes[1:], sidecars, now); !all || err != nil || p.free.Sub(now) > time.Second {
		t.Errorf("all %v, %v, rests for %v", all, err, p.free.Sub(now))
	}
	if all, err := p.replace(nil, 0, now.Add(time.Second)); !all || err != nil || p.cache.NumResources() != 0 {
		t.Errorf("all %v, %v; %d resources are left", all, err, p.cache.NumResources())
	}
}
