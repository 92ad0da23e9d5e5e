package fleet_test

import (
	"fmt"
	"testing"

	"github.com/sluice-bus/sluice/controlplane/internal/fleet"
	"github.com/sluice-bus/sluice/test/require"
)

// BenchmarkExport is what a control plane with 1,000 sidecars pays to tell the others, and they to
// hear it.
func BenchmarkExport(b *testing.B) {
	c := newClock()
	r := fleet.NewRegistry(fleet.Config{ControlPlane: "cp1", Now: c.now})
	there := fleet.NewRegistry(fleet.Config{ControlPlane: "cp2", Now: c.now})
	for i := range 1000 {
		n := fleet.Node{ID: fmt.Sprint("node-", i), Instance: "0198c5a0-7b6e-7f3c-9d5e-000000000000", Address: "10.0.0.1:8083"}
		s, err := r.Connect(n, fleet.Prefix{})
		require.NoError(b, err)
		versions := map[string]int64{}
		for j := range 20 {
			topic := fmt.Sprintf("team-%d.events", (i*10+j)%10_000)
			versions[topic] = 1
			r.Usage(fmt.Sprint("node-", i), topic, uint64(i), 1, c.at)
		}
		runs(s, versions)
	}
	b.ReportAllocs()
	for b.Loop() {
		document := r.Export()
		b.ReportMetric(float64(len(document))/1024, "KiB")
		require.NoError(b, there.Merge("cp2", [][]byte{document}))
	}
}
