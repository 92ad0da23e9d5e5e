// Package dapr runs the SDKs for Go of Dapr and of CloudEvents against a sidecar, as their users do. SLUICE_SIDECAR is the sidecar's program.
package dapr

import (
	"bufio"
	"context"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dapr/go-sdk/client"
	"github.com/dapr/go-sdk/service/common"
)

// patience is how long a test waits for something that is sure to come.
const patience = 30 * time.Second

const policies = `[{name: "*", publish: {rate: 0}, connection: {rate: 0}, partitions: 2, ` +
	`delivery: {max_attempts: 3, backoff: {min: 1ms, max: 10ms}}}, ` +
	// Dapr's own applications answer for some time that they want these again.
	`{name: pubsub-a-*, delivery: {max_attempts: 10000}}, {name: pubsub-deadletter-*, delivery: {max_attempts: 10000}}]`

// sidecar is a running sidecar.
type sidecar struct {
	HTTP   string `json:"listen"`
	GRPC   string `json:"dapr_grpc"`
	Replay string `json:"replay"`
	stop   func()
}

// startSidecar starts one with its data in dir.
func startSidecar(t *testing.T, dir string, args ...string) *sidecar {
	t.Helper()
	file := write(t, "policies.yaml", policies)
	args = append([]string{"--listen", "127.0.0.1:0", "--replay-listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0",
		"--dapr-grpc-listen", "127.0.0.1:0", "--dapr-app-id", "shop", "--data-dir", dir, "--policies", file}, args...)
	cmd := exec.Command(os.Getenv("SLUICE_SIDECAR"), args...)
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatalf("SLUICE_SIDECAR: %v", err)
	}
	s := &sidecar{stop: sync.OnceFunc(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("the sidecar ends with %v", err)
		}
	})}
	t.Cleanup(s.stop)
	line, _ := bufio.NewReader(out).ReadBytes('\n')
	if err := json.Unmarshal(line, s); err != nil {
		t.Fatalf("the sidecar is not ready: %q", line)
	}
	return s
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func (s *sidecar) client(t *testing.T) client.Client {
	t.Helper()
	c, err := client.NewClientWithAddress(s.GRPC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func publish(t *testing.T, c client.Client, topic string, data any, opts ...client.PublishEventOption) {
	t.Helper()
	if err := c.PublishEvent(t.Context(), "pubsub", topic, data, opts...); err != nil {
		t.Fatal(err)
	}
}

// freeAddress is an address on which nothing listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// application is what both kinds of the SDK's services have in common.
type application struct {
	common.Service
	events chan *common.TopicEvent
	mu     sync.Mutex
	seen   map[string]int // attempts by data
}

// on subscribes to a topic. The data says what the handler does: retry once, drop, or fail always; else it succeeds.
func (a *application) on(t *testing.T, sub common.Subscription) {
	t.Helper()
	sub.PubsubName = "pubsub"
	if err := a.AddTopicEventHandler(&sub, func(_ context.Context, e *common.TopicEvent) (retry bool, err error) {
		a.events <- e
		data, _ := e.Data.(string)
		a.mu.Lock()
		a.seen[data]++
		attempt := a.seen[data]
		a.mu.Unlock()
		switch {
		case e.Topic == "dead":
		case data == "retry" && attempt == 1, data == "fail":
			return true, context.DeadlineExceeded
		case data == "drop":
			return false, context.DeadlineExceeded
		}
		return false, nil
	}); err != nil {
		t.Fatal(err)
	}
}

// run starts the service until stop.
func (a *application) run(t *testing.T) (stop func()) {
	t.Helper()
	var serving sync.WaitGroup
	serving.Go(func() { _ = a.Start() })
	stop = sync.OnceFunc(func() {
		_ = a.GracefulStop()
		serving.Wait()
	})
	t.Cleanup(stop)
	return stop
}

// next waits for the next event, which must have the data.
func (a *application) next(t *testing.T, topic, data string) *common.TopicEvent {
	t.Helper()
	select {
	case e := <-a.events:
		if got, _ := e.Data.(string); got != data || e.Topic != topic {
			t.Errorf("%s gets %q (%T), want %s and %q", e.Topic, e.Data, e.Data, topic, data)
		}
		return e
	case <-time.After(patience):
		t.Fatalf("there is no event %q of %s", data, topic)
		return nil
	}
}
