package federation

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/replay"
	"github.com/sluice-bus/sluice/test/require"
)

// benchMember sends a text that is there already.
type benchMember struct {
	dead
	who  replay.Peer
	text []byte
}

func (m *benchMember) hello(context.Context) (replay.Peer, error) { return m.who, nil }

func (m *benchMember) open(context.Context, ask) (io.ReadCloser, bool, error) {
	return io.NopCloser(bytes.NewReader(m.text)), false, nil
}

// benchText is the text of every parts-th of n events from first, of that size.
func benchText(n, first, parts, size int) []byte {
	var out []byte
	for i := first; i < n; i += parts {
		e := record(1_700_000_000_000+int64(i/3), fmt.Sprintf("01970000-0000-7000-8000-%012x", i), "customer-17", "")
		e.Payload = nil
		short := len(codec.AppendEventJSON(nil, &e.Event)) - len("null")
		e.Payload = []byte(`"` + strings.Repeat("x", size-short-2) + `"`)
		out = append(codec.AppendEventJSON(out, &e.Event), '\n')
	}
	return out
}

// cpuTime is what the process has used of the processors: a figure that means something also on a
// machine that others use.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkMerge is the federation alone: parts that are in memory, one store each, merged and let
// through once.
func BenchmarkMerge(b *testing.B) {
	for _, size := range []int{200, 1000} {
		for _, parts := range []int{1, 3, 5} {
			b.Run(fmt.Sprintf("bytes=%d/parts=%d", size, parts), func(b *testing.B) {
				const events = 200_000
				members := map[string]*benchMember{}
				var peers []Peer
				for i := range parts {
					name := fmt.Sprint("n", i)
					members[name] = &benchMember{
						who:  replay.Peer{NodeID: name, Instance: name, StoreID: name},
						text: benchText(events, i, parts, size),
					}
					peers = append(peers, Peer{Address: name})
				}
				c := config(newNode("self", "self", newMemory(), nil))
				c.Peers = func() []Peer { return peers }
				f := newFleet(b, c)
				f.reach = func(p Peer) member { return members[p.Address] }
				b.ReportAllocs()
				total, began := 0, cpuTime()
				for b.Loop() {
					s, err := f.Open(b.Context(), replay.FleetQuery{Topic: topic})
					require.NoError(b, err)
					n := 0
					for ; err == nil; n++ {
						_, _, err = s.Next()
					}
					if err != io.EOF || n-1 != events {
						b.Fatal(n, err)
					}
					total += events
					s.Close()
				}
				b.ReportMetric(float64(total)/b.Elapsed().Seconds(), "events/s")
				b.ReportMetric(float64(cpuTime()-began)/float64(total), "cpu-ns/event")
				b.SetBytes(int64(events * size))
			})
		}
	}
}
