package simulation

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-bus/sluice/controlplane/internal/store"
	"github.com/sluice-bus/sluice/controlplane/internal/store/mongostore"
	"github.com/sluice-bus/sluice/test/mongomodel"
	"github.com/sluice-bus/sluice/test/require"
)

// lateness is by how much updates come late.
const lateness = time.Minute

// withLateStore runs do with a store whose updates come late, without an answer, while losing is
// set.
func withLateStore(t *testing.T, do func(t *testing.T, s *mongostore.Store, losing *atomic.Bool)) {
	synctest.Test(t, func(t *testing.T) {
		var losing atomic.Bool
		set := mongomodel.New(mongomodel.Options{Polling: true, Fault: func(q mongomodel.Request) (f mongomodel.Fault) {
			if losing.Load() && q.Command == "update" {
				f.Late = lateness
			}
			return f
		}})
		defer set.Close()
		// The server would know a late one by its number if the driver sent it again.
		s, err := mongostore.Open(mongostore.Options{
			URL: set.URI() + "&retryWrites=false", Timeout: time.Second, Dialer: set.Dialer("p0"),
		})
		require.NoError(t, err)
		defer s.Close()
		do(t, s, &losing)
	})
}

// A sign of life that is carried out when its sender has given it up replaces none that was given
// after it, and does not bring back a control plane that was removed meanwhile.
func TestALateSignOfLifeChangesNothing(t *testing.T) {
	for _, late := range []string{"first", "second"} {
		for _, then := range []string{"put", "remove"} {
			t.Run("the "+late+", then "+then, func(t *testing.T) {
				withLateStore(t, func(t *testing.T, s *mongostore.Store, losing *atomic.Bool) {
					put := func(doc string) error { return s.Put(context.Background(), "me", []byte(doc)) }
					if late == "second" {
						require.NoError(t, put("first"))
					}
					losing.Store(true)
					if put("late") == nil {
						t.Error("a sign of life was answered that was lost")
					}
					losing.Store(false)
					want, err := 1, error(nil)
					switch then {
					case "put":
						err = put("newest")
					case "remove":
						if late == "first" {
							require.NoError(t, put("newest"))
						}
						docs, listing := s.List(context.Background())
						if listing != nil || len(docs) != 1 {
							t.Fatalf("%+v, %v", docs, listing)
						}
						err, want = s.Remove(context.Background(), "me", docs[0].Beat), 0
					}
					require.NoError(t, err)
					time.Sleep(2 * lateness)
					docs, err := s.List(context.Background())
					if err != nil || len(docs) != want || want > 0 && string(docs[0].Doc) != "newest" {
						t.Errorf("%+v, %v; want %d, the newest", docs, err, want)
					}
				})
			})
		}
	}
}

// An entry of a sidecar that is carried out after it has left does not bring it back; that of a
// later life does.
func TestALateEntryOfASidecarChangesNothing(t *testing.T) {
	withLateStore(t, func(t *testing.T, s *mongostore.Store, losing *atomic.Bool) {
		ctx := context.Background()
		for _, later := range []bool{false, true} {
			losing.Store(true)
			if s.Enter(ctx, store.RosterEntry{Key: "s", Life: "1", Doc: []byte("late")}) == nil {
				t.Error("an entry was answered that was lost")
			}
			losing.Store(false)
			require.NoError(t, s.Leave(ctx, "s", "1"))
			var err error
			if later {
				err = s.Enter(ctx, store.RosterEntry{Key: "s", Life: "2", Doc: []byte("back")})
			}
			time.Sleep(2 * lateness)
			entered, listing := s.Entered(ctx)
			if err != nil || listing != nil || later != (len(entered) == 1) || later && string(entered[0].Doc) != "back" {
				t.Errorf("later %v: %+v, %v, %v", later, entered, err, listing)
			}
		}
	})
}
