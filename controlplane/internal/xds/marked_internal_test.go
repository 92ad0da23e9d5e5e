package xds

import (
	"fmt"
	"testing"

	"github.com/envoyproxy/go-control-plane/pkg/cache/types"

	"github.com/sluice-bus/sluice/internal/policypb"
	"github.com/sluice-bus/sluice/test/require"
)

// A response that is sent late is of the last revision that had its content.
func TestRevisionOfContent(t *testing.T) {
	m := newMarked(policypb.PolicyPackType)
	change := func() {
		require.NoError(t, m.update(map[string]types.Resource{"t": &policypb.PolicyPack{}}, nil))
	}
	follow := func(n int64, changes bool) { m.follow(policypb.Revision{Number: n}, changes) }
	follow(1, true)
	change() // 1
	follow(2, false)
	change() // 2: a placeholder
	follow(3, false)
	follow(4, true)
	change() // 3
	change() // 4
	follow(5, true)
	change() // 5
	for version, want := range []int64{0, 3, 3, 4, 4, 5} {
		if got := m.revisionOf(fmt.Sprint(version)); got.Number != want {
			t.Errorf("version %d is of revision %v, want %d", version, got, want)
		}
	}
}
