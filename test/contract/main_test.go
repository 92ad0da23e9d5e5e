// Package contract holds the sidecar to its external contract, as a reader of that page alone
// would: the real program, raw HTTP and raw WebSocket frames, JSON written out by hand. It knows no
// package of the implementation, so that a mistake in one cannot hide here.
package contract

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-bus/sluice/test/openapitest"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

func TestMain(m *testing.M) {
	testkit.Parallel()
	http.DefaultClient.Transport = &openapitest.Transport{Next: http.DefaultTransport}
	goleak.VerifyTestMain(withSidecar{m})
}

// withSidecar ends the process that the tests share before leaks are looked for.
type withSidecar struct{ tests *testing.M }

func (w withSidecar) Run() int {
	defer func() {
		sharedLife.end()
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	}()
	return w.tests.Run()
}

// sharedLife is the testing.TB of the shared process, which outlives every test.
var sharedLife = &packageLife{}

type packageLife struct {
	testing.TB // never called: the methods that the process's start needs are below

	cleanups []func()
}

func (l *packageLife) Helper()              {}
func (l *packageLife) Failed() bool         { return false }
func (l *packageLife) Logf(string, ...any)  {}
func (l *packageLife) Cleanup(f func())     { l.cleanups = append(l.cleanups, f) }
func (l *packageLife) Fatal(reasons ...any) { panic(fmt.Sprint(reasons...)) }

func (l *packageLife) end() {
	for _, f := range slices.Backward(l.cleanups) {
		f()
	}
}

// sharedPolicies lift the rate limits, which are the subject of tests that start their own sidecar.
const sharedPolicies = `
- name: "*"
  publish: {rate: 0}
  connection: {rate: 0}
  partitions: 4
  delivery: {max_inflight: 5000, max_attempts: 100, ack_timeout: 1h, backoff: {min: 50ms, max: 100ms}}
- name: one.*
  partitions: 1
- name: paused.*
  paused: true
`

var rounds struct {
	sync.Mutex
	of      map[string]int // how often each test has asked
	servers []*server
}

// shared is the sidecar without rate limits that most tests use, each with topics of its own. If a
// test runs again (-count), all tests get a new one. On a shared store, each test has a sidecar and
// a database of its own: otherwise the server would read the events of all tests for each of them.
func shared(t *testing.T) *server {
	t.Helper()
	if sharesStore(t) {
		return own(t, sharedPolicies)
	}
	rounds.Lock()
	defer rounds.Unlock()
	if rounds.of == nil {
		rounds.of = map[string]int{}
	}
	round := rounds.of[t.Name()]
	rounds.of[t.Name()]++
	if round == len(rounds.servers) {
		dir, err := os.MkdirTemp("", "sluice-contract-")
		require.NoError(t, err)
		sharedLife.Cleanup(func() { os.RemoveAll(dir) })
		rounds.servers = append(rounds.servers, home{dir, "embedded:"}.start(sharedLife, sharedPolicies))
	}
	return rounds.servers[round]
}
