// Package heaptest measures what clients make a program hold that runs in the test's own process, and
// compares it with what the program's budget counted.
package heaptest

import (
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

const (
	// clients is how many clients are measured together, so that what else the program does is little beside them.
	clients = 30
	// uncounted is the most that one may hold beside what was counted: a connection with its buffers and goroutines.
	uncounted = 64 << 10
	// rounding is the part of what was counted by which the allocator may round it up.
	rounding = 16
	// steady is for how many looks nothing may change until all requests are taken to be where they will stay.
	steady  = 15
	lookFor = 5 * time.Millisecond
	// tries is how often clients are measured until they hold no more: what they hold is there each time, what the program fills once
	// for all, such as its caches, is not.
	tries = 3
)

// Program is a program under test.
type Program struct {
	Dial    func() (net.Conn, error)
	Counted func() int64 // by its budget
}

// Request is the text of a request.
type Request struct{ Method, Path, Body, Headers string }

func (r Request) text(length int, body string) string {
	return fmt.Sprintf("%s %s HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: %d\r\n\r\n%s", r.Method, r.Path, r.Headers, length, body)
}

// longBody is the length of a body that does not come whole.
const longBody = 1 << 20

// Behaviours are the ways in which a client may leave a request of HTTP.
func (r Request) Behaviours() map[string]string {
	return map[string]string{
		"does not read":   r.text(len(r.Body), r.Body),
		"does not write":  r.text(longBody, ""),
		"stops midway":    r.text(longBody, strings.Repeat(" ", longBody/2)),
		"stops in a head": strings.TrimSuffix(r.text(0, ""), "\r\n") + "X-Long: " + strings.Repeat("x", 60<<10),
	}
}

// Some returns a function that picks one of the texts with -short, and all without. Each call picks the
// next one by name; the seed of the run decides with which one the first call begins.
func Some(t *testing.T) func(texts map[string]string) map[string]string {
	t.Helper()
	if !testing.Short() {
		return func(texts map[string]string) map[string]string { return texts }
	}
	next := testkit.Seed(t)
	return func(texts map[string]string) map[string]string {
		next++
		names := slices.Sorted(maps.Keys(texts))
		name := names[next%uint64(len(names))]
		return map[string]string{name: texts[name]}
	}
}

// Do makes a request, and returns its answer. The headers are names and values in turn.
func Do(t *testing.T, client *http.Client, method, path, body string, headers ...string) []byte {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://localhost"+path, strings.NewReader(body))
	require.NoError(t, err)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	res, err := client.Do(r)
	require.NoError(t, err)
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	if res.StatusCode >= 300 {
		t.Fatalf("%s %s: %s %s", method, path, res.Status, answer)
	}
	return answer
}

// Check has clients send a text each, and read nothing, and fails if one holds much that is not counted.
func (p Program) Check(t *testing.T, text string) {
	t.Helper()
	var each, counted int64
	for range tries {
		if each, counted = p.hold(t, text); each <= uncounted {
			return
		}
	}
	t.Errorf("a client holds %d KiB that are not counted, beside %d KiB that are", each>>10, counted>>10)
}

// hold returns what each client holds that was not counted, and what was.
func (p Program) hold(t *testing.T, text string) (each, eachCounted int64) {
	t.Helper()
	sent, conns := []byte(text), make([]net.Conn, clients)
	before, countedBefore := p.measure()
	for i := range conns {
		c, err := p.Dial()
		require.NoError(t, err)
		defer c.Close()
		conns[i] = c
		go func() { _, _ = c.Write(sent) }() // it ends with the connection
	}
	held, counted := p.measure()
	held, counted = held-before, counted-countedBefore
	runtime.KeepAlive(sent)
	for _, c := range conns {
		c.Close()
	}
	p.settle()
	return (held - counted - counted/rounding) / clients, counted / clients
}

// Idle is how many bytes each of n connections takes that send a text, read the answer and then nothing more.
func Idle(t *testing.T, dial func() (net.Conn, error), n int, text string) int64 {
	t.Helper()
	open := make([]net.Conn, n)
	before := inUse()
	answer := make([]byte, 4<<10)
	for i := range open {
		c, err := dial()
		require.NoError(t, err)
		defer c.Close()
		_, err = io.WriteString(c, text)
		require.NoError(t, err)
		_, err = c.Read(answer)
		require.NoError(t, err)
		open[i] = c
	}
	each := (inUse() - before) / int64(n)
	runtime.KeepAlive(open)
	return each
}

// measure is the memory in use, and what was counted of it, once neither changes any more.
func (p Program) measure() (held, counted int64) {
	for range 10 {
		p.settle()
		last := held
		counted, held = p.Counted(), inUse()
		if moved := held - last; p.Counted() == counted && max(moved, -moved) < clients*uncounted/16 {
			break
		}
	}
	return held, counted
}

// settle returns once nothing changes any more.
func (p Program) settle() {
	type state struct {
		counted int64
		running int
	}
	last, same := state{}, 0
	for range 100 {
		now := state{p.Counted(), runtime.NumGoroutine()}
		if same++; now != last {
			last, same = now, 0
		}
		if same == steady {
			return
		}
		time.Sleep(lookFor)
	}
}

// inUse is the memory of the heap and of stacks; what pools keep is not.
func inUse() int64 {
	for range 3 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
