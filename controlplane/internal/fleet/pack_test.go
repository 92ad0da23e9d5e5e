package fleet

import (
	"testing"

	"github.com/sluice-bus/sluice/test/require"
)

func TestWhatDoesNotFitIsLeftOut(t *testing.T) {
	full := func() *document {
		d := &document{ControlPlane: "cp1"}
		d.Sidecars = []instance{{Sidecar: Sidecar{NodeID: "a", Connected: true},
			parts: []*Part{{ID: "h", Versions: map[string]int64{"x": 1}}}}, {Sidecar: Sidecar{NodeID: "b"}}}
		d.Topics = []flatTopic{{Topic: "x", Rates: []float64{1, 2}, History: make([]float64, 2*historySlots)}}
		d.share()
		return d
	}
	for _, test := range []struct {
		limit                           int
		history, versions, topics, left bool
	}{
		{MaxExport, true, true, true, true},
		{len(full().encode()) - 1, false, true, true, true},
		{0, false, false, false, false},
	} {
		o, err := read(full().pack(test.limit), nil)
		require.NoError(t, err)
		if got := len(o.topics) > 0 && o.topics[0].History != nil; got != test.history {
			t.Errorf("limit %d: history is %v", test.limit, got)
		}
		if got := o.sidecars[0].parts != nil; got != test.versions {
			t.Errorf("limit %d: versions are %v", test.limit, got)
		}
		if got := len(o.topics) > 0; got != test.topics {
			t.Errorf("limit %d: topics are %v", test.limit, got)
		}
		if got := len(o.sidecars) == 2; got != test.left {
			t.Errorf("limit %d: those that left are %v", test.limit, got)
		}
	}
}
