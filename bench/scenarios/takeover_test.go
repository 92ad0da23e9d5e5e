package scenarios

import (
	"context"
	"errors"
	"testing"

	"github.com/sluice-bus/sluice/bench/internal/load"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/require"
)

// refusing is a source whose acks end with these errors, and a sink that counts them.
type refusing struct {
	load.Source
	load.Sink
	errs  []error
	count int
}

func (r *refusing) Subscribe(_ context.Context, to load.Sink) error {
	for _, err := range r.errs {
		to.Refused(err)
	}
	return nil
}

func (r *refusing) Refused(error) { r.count++ }

// TestAcksAtTheKilledSidecar: what the kill leaves without an answer is no failure of the takeover, and a refusal is one.
func TestAcksAtTheKilledSidecar(t *testing.T) {
	r := &refusing{errs: []error{errors.New("the connection is gone"), &wire.Error{Code: wire.NotFound}}}
	require.NoError(t, doomedSource{r}.Subscribe(t.Context(), r))
	if r.count != 1 {
		t.Errorf("%d acks have failed, want the refused one", r.count)
	}
}
