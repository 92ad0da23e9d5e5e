package testkit

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-bus/sluice/test/require"
)

// env stands for the environment.
type env map[string]string

func (e env) get(name string) string { return e[name] }

func TestRounds(t *testing.T) {
	for name, c := range map[string]struct {
		env      env
		failing  uint64
		want     []uint64
		wantFail bool
	}{
		"one":               {env{seedVar: "7"}, 0, []uint64{7}, false},
		"until it is over":  {env{seedVar: "7", timeVar: "3s"}, 0, []uint64{7, 8, 9}, false},
		"to a failure":      {env{seedVar: "7", timeVar: "1h"}, 8, []uint64{7, 8}, true},
		"one at least":      {env{seedVar: "7", timeVar: "1ns"}, 0, []uint64{7}, false},
		"and that may fail": {env{seedVar: "7"}, 7, []uint64{7}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, err := read(c.env.get)
				require.NoError(t, err)
				var got []uint64
				n, ok := s.run(func(n int, seed uint64) bool {
					if n != len(got) {
						t.Errorf("round %d after %d", n, len(got))
					}
					got = append(got, seed)
					time.Sleep(time.Second)
					return seed != c.failing
				}, time.Now)
				well := len(got)
				if !ok {
					well--
				}
				if !slices.Equal(got, c.want) || ok == c.wantFail || n != well {
					t.Errorf("seeds %v, %d went well, all: %v", got, n, ok)
				}
			})
		})
	}
}

func TestEveryRunHasAnotherSeed(t *testing.T) {
	seen := map[uint64]bool{}
	for range 10 {
		s, err := read(env{}.get)
		require.NoError(t, err)
		seen[s.seed] = true
	}
	if len(seen) < 2 {
		t.Errorf("ten runs had the seeds %v", seen)
	}
}

func TestWrongVariablesAreNamed(t *testing.T) {
	for name, value := range map[string]string{seedVar: "-1", timeVar: "5"} {
		if _, err := read(env{name: value}.get); err == nil || !strings.Contains(err.Error(), name+"="+value) {
			t.Errorf("%s=%s: %v", name, value, err)
		}
	}
}

func TestSubtestsHaveTheirSeeds(t *testing.T) {
	t.Setenv(seedVar, "41")
	t.Setenv(timeVar, "")
	var names []string
	Rounds(t, func(t *testing.T, seed uint64) {
		if seed != 41 {
			t.Errorf("seed %d", seed)
		}
		names = append(names, t.Name())
	})
	if !slices.Equal(names, []string{"TestSubtestsHaveTheirSeeds/seed=41"}) {
		t.Errorf("subtests %q", names)
	}
}

// Seeds one after the other choose all cases between them, each once.
func TestSome(t *testing.T) {
	cases := []int{0, 1, 2, 3, 4, 5, 6}
	if !testing.Short() {
		if got := Some(t, 3, cases); !slices.Equal(got, cases) {
			t.Errorf("without -short they are %v", got)
		}
		return
	}
	var all []int
	for seed := range 3 {
		t.Setenv(seedVar, strconv.Itoa(40+seed))
		some := Some(t, 3, cases)
		if len(some) == 0 || len(some) > 3 {
			t.Errorf("one of three is %v", some)
		}
		all = append(all, some...)
	}
	if slices.Sort(all); !slices.Equal(all, cases) {
		t.Errorf("three seeds choose %v", all)
	}
}
