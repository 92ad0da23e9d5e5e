package sdk_test

import (
	"errors"
	"strconv"
	"testing"

	"github.com/sluice-bus/sluice/sdk/exactlyonce"
	"github.com/sluice-bus/sluice/test/require"
)

// BenchmarkMemory measures the cost of an event in each form in memory, with an effect that does
// nothing. Package oncestore has the same for MongoDB.
func BenchmarkMemory(b *testing.B) {
	ctx := b.Context()
	h := newHandler(b, exactlyonce.NewMemory(100_000), exactlyonce.Options{})
	next := 0
	id := func() string { next++; return "order-" + strconv.Itoa(next) }
	run := func(name string, do func() error) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				require.NoError(b, do())
			}
		})
	}
	run("SeenAndMark", func() error {
		id := id()
		_, err := h.Seen(ctx, id)
		return errors.Join(err, h.Mark(ctx, id))
	})
	run("Do", func() error { _, err := h.Do(ctx, id(), nothing); return err })
	if _, err := h.Do(ctx, "again", nothing); err != nil {
		b.Fatal(err)
	}
	run("DoAgain", func() error { _, err := h.Do(ctx, "again", nothing); return err })
}
