package shared

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// Signals that name a topic again and again, while the store does not answer, are one recheck at a
// time and one more after it; what fails is tried again.
func TestErasures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newErasures()
		var done []string
		running := 0
		answer := make(chan error)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- e.run(ctx, func(ctx context.Context, topic string) error {
				if running++; running > 1 {
					t.Error("two at once")
				}
				defer func() { running-- }()
				done = append(done, topic)
				select {
				case err := <-answer:
					return err
				case <-ctx.Done():
					return ctx.Err()
				}
			}, slog.New(slog.DiscardHandler))
		}()
		for range 1000 {
			e.add("a")
			synctest.Wait()
		}
		answer <- nil
		synctest.Wait()
		answer <- errors.New("the store is away")
		time.Sleep(time.Minute)
		answer <- nil
		time.Sleep(time.Hour)
		synctest.Wait()
		if !slices.Equal(done, []string{"a", "a", "a"}) {
			t.Errorf("rechecked %q", done)
		}
		e.add("b")
		synctest.Wait()
		cancel()
		if err := <-ended; err != nil || done[len(done)-1] != "b" {
			t.Errorf("ended with %v after %q", err, done)
		}
	})
}
