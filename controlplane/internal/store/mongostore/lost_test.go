package mongostore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/controlplane/internal/store"
	"github.com/sluice-bus/sluice/controlplane/internal/store/storetest"
	"github.com/sluice-bus/sluice/test/faultproxy"
	"github.com/sluice-bus/sluice/test/mongotest"
	"github.com/sluice-bus/sluice/test/require"
)

// Inserts and their answers are lost; who sends a commit again learns what has become of it, and
// nobody's commit is stored twice or taken for another's.
func TestLostInserts(t *testing.T) {
	server := mongotest.Shared(t)
	database := server.NewDatabase(t)
	proxy := faultproxy.New(t, server.Addr())
	proxy.Seed(1)
	proxy.Only(func(request []byte) bool {
		return bytes.Contains(request, []byte("insert")) && bytes.Contains(request, []byte(commitsName))
	})
	proxy.CutReplies(0.4)
	proxy.CutRequests(0.2)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()

	var mu sync.Mutex
	acked, lost := map[string]int64{}, 0
	var appenders sync.WaitGroup
	for i := range 2 {
		// The driver would send again by itself, and nothing would be lost for the store.
		s, err := Open(Options{URL: server.URIVia(proxy.Addr(), database) + "&retryWrites=false", Timeout: patience})
		require.NoError(t, err)
		defer s.Close()
		appenders.Go(func() {
			for n := range 5 {
				token := fmt.Sprintf("%d/%d", i, n)
				revision, unheard, err := appendUntilKnown(ctx, s, token)
				if err != nil {
					t.Errorf("%s: %v", token, err)
					return
				}
				mu.Lock()
				acked[token], lost = revision, lost+unheard
				mu.Unlock()
			}
		})
	}
	appenders.Wait()
	all, err := storetest.All(ctx, opened(t, server.URI(database)), 0)
	if err != nil || len(all) != len(acked) {
		t.Fatalf("%d commits, %d acknowledged, %v", len(all), len(acked), err)
	}
	for i, c := range all {
		if c.Revision != int64(i+1) || acked[c.Token] != c.Revision {
			t.Errorf("place %d has %d of %s, acknowledged as %d", i, c.Revision, c.Token, acked[c.Token])
		}
	}
	if lost == 0 {
		t.Error("nothing was lost, so nothing was tested")
	}
	t.Logf("%d commits, %d answers or inserts lost", len(all), lost)
}

// appendUntilKnown appends behind whatever is there, and sends the same commit again while its
// outcome is not known.
func appendUntilKnown(ctx context.Context, s *Store, token string) (revision int64, unheard int, _ error) {
	for {
		all, err := storetest.All(ctx, s, revision)
		if errors.Is(err, store.ErrUnavailable) && ctx.Err() == nil {
			continue
		}
		if err != nil {
			return 0, 0, err
		}
		revision += int64(len(all))
		c := storetest.Commit(revision + 1)
		c.Token = token
		err = s.Append(ctx, c)
		for errors.Is(err, store.ErrUnavailable) && ctx.Err() == nil {
			unheard++
			err = s.Append(ctx, c)
		}
		if !errors.Is(err, store.ErrConflict) {
			return c.Revision, unheard, err
		}
	}
}
