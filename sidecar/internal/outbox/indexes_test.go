package outbox

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/test/require"
)

func TestCreateIndex(t *testing.T) {
	a := newApp(t)
	var lines bytes.Buffer
	d := &Drainer{cfg: Config{Logger: slog.New(slog.NewTextHandler(&lines, nil))}, outbox: a.coll}
	ctx := context.Background()
	a.insert(keyed("a", "t", "", 1), keyed("b", "t", "", 2))
	count := func() int {
		t.Helper()
		there, err := d.indexes(ctx)
		require.NoError(t, err)
		return len(there) - 1 // without that of _id
	}
	for _, c := range []struct {
		most            int64
		indexes, warned int
	}{{1, 0, 1}, {2, 1, 0}, {0, 1, 0}} {
		lines.Reset()
		require.NoError(t, d.createIndex(ctx, c.most))
		if got, warned := count(), strings.Count(lines.String(), "has no index"); got != c.indexes || warned != c.warned {
			t.Errorf("at most %d documents: %d indexes, want %d; %s", c.most, got, c.indexes, &lines)
		}
	}
}
