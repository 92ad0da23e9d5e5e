package testkit

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/test/require"
)

// The variables that make soak sets: how long rounds are repeated, 0s for one round, and the seed
// of the first one. The seed alone is for go test, whose rounds are the same then.
const (
	timeVar = "SLUICE_SOAK_TIME"
	seedVar = "SLUICE_SOAK_SEED"
)

// tellEvery is the interval of a soak's messages.
const tellEvery = 10 * time.Second

// Rounds runs the round as a subtest: once, or with successive seeds until the soak's time is over
// or one has failed. All chance in a round comes from its seed. A failure is followed by the
// command that repeats it.
func Rounds(t *testing.T, round func(t *testing.T, seed uint64)) {
	t.Helper()
	s, err := read(os.Getenv)
	require.NoError(t, err)
	told := s.began
	tell := func(n int) { t.Logf("%s: rounds done: %d, from seed %d", t.Name(), n, s.seed) }
	n, ok := s.run(func(n int, seed uint64) bool {
		if now := time.Now(); now.Sub(told) >= tellEvery {
			told = now
			tell(n)
		}
		return t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) { round(t, seed) })
	}, time.Now)
	if !ok {
		t.Logf("to repeat it: make soak RUN=%s SEED=%d", t.Name(), s.seed+uint64(n))
		return
	}
	tell(n)
}

// SoakTime is how long make soak repeats the rounds of one test; running is false in go test.
func SoakTime() (share time.Duration, running bool) {
	text := os.Getenv(timeVar)
	share, _ = time.ParseDuration(text) // Rounds reports an error
	return share, text != ""
}

// SoakOnly skips a test that go test has no time for.
func SoakOnly(t testing.TB) {
	t.Helper()
	if _, soaking := SoakTime(); !soaking {
		t.Skip("make soak has the time for this")
	}
}

// Some are one of n of the cases with -short, another part for each seed, and all without.
func Some[T any](t testing.TB, n int, cases []T) (some []T) {
	t.Helper()
	if !testing.Short() {
		return cases
	}
	for i := int(Seed(t) % uint64(n)); i < len(cases); i += n {
		some = append(some, cases[i])
	}
	return some
}

// Seed is what a test of no rounds chooses by: the seed that CI or make soak has, or a fresh one, which
// the test says.
func Seed(t testing.TB) uint64 {
	t.Helper()
	s, err := read(os.Getenv)
	require.NoError(t, err)
	t.Logf("%s=%d repeats what this run chooses", seedVar, s.seed)
	return s.seed
}

// soak says which rounds to run.
type soak struct {
	seed  uint64 // of the first round
	began time.Time
	lasts time.Duration // 0: one round
}

func read(getenv func(string) string) (s soak, err error) {
	s = soak{seed: uint64(rand.Uint32()), began: time.Now()} // short enough to be typed
	if text := getenv(seedVar); text != "" {
		if s.seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			return s, fmt.Errorf("%s=%s is not a number without a sign", seedVar, text)
		}
	}
	if text := getenv(timeVar); text != "" {
		if s.lasts, err = time.ParseDuration(text); err != nil {
			return s, fmt.Errorf("%s=%s is not a duration such as 90s", timeVar, text)
		}
	}
	return s, nil
}

// run returns how many rounds went well, and whether none failed.
func (s soak) run(round func(n int, seed uint64) bool, now func() time.Time) (n int, ok bool) {
	for {
		if !round(n, s.seed+uint64(n)) {
			return n, false
		}
		if n++; now().Sub(s.began) >= s.lasts {
			return n, true
		}
	}
}
