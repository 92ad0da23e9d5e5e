package dapr

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	commonpb "github.com/dapr/dapr/pkg/proto/common/v1"
	runtimepb "github.com/dapr/dapr/pkg/proto/runtime/v1"
	"github.com/dapr/go-sdk/client"
)

// ownAddress is where Dapr's own applications listen: they cannot be told another.
const ownAddress = "127.0.0.1:3000"

// own is one of the applications by which Dapr tests itself, as they are in its module.
type own struct {
	*testing.T
	call func(method string) (answer []byte, err error)
}

// startOwn builds and starts one, in a folder below tests/apps. Tests take turns, also those of other runs on this machine.
func startOwn(t *testing.T, name string) own {
	t.Helper()
	turn, err := os.OpenFile(filepath.Join(os.TempDir(), "sluice-port-3000.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		t.Cleanup(func() { _ = turn.Close() })
		err = syscall.Flock(int(turn.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", ownAddress)
	if err != nil {
		t.Fatalf("another program is where Dapr's application has to listen: %v", err)
	}
	_ = ln.Close()
	program := filepath.Join(t.TempDir(), name)
	if out, err := exec.Command("go", "build", "-trimpath", "-o", program, "github.com/dapr/dapr/tests/apps/"+name).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.Command(program)
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	o := own{t, post}
	if strings.HasSuffix(name, "_grpc") {
		o.call = invoker(t)
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if _, err := o.call("initialize"); err == nil {
			return o
		} else if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

func post(method string) (answer []byte, err error) {
	res, err := http.Post("http://"+ownAddress+"/"+method, "", nil)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", method, res.Status)
	}
	return io.ReadAll(res.Body)
}

// invoker calls an application over gRPC by what is for other applications in Dapr.
func invoker(t *testing.T) func(method string) (answer []byte, err error) {
	t.Helper()
	conn, err := grpc.NewClient(ownAddress, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	app := runtimepb.NewAppCallbackClient(conn)
	return func(method string) ([]byte, error) {
		res, err := app.OnInvoke(context.Background(), &commonpb.InvokeRequest{Method: method})
		return res.GetData().GetValue(), err
	}
}

// gets waits until the application has received a message where it says so. Until then it calls publish again and again, if that is
// not nil: a group begins at the latest event.
func (o own) gets(where, message string, publish func()) {
	o.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		if publish != nil {
			publish()
		}
		answer, err := o.call("getMessages")
		if err != nil {
			o.Fatal(err)
		}
		var received map[string][]string
		if err := json.Unmarshal(answer, &received); err != nil {
			o.Fatal(err)
		}
		if slices.Contains(received[where], message) {
			return
		}
		if time.Now().After(deadline) {
			o.Fatalf("%s has %v, want %s", where, received[where], message)
		}
	}
}

// Dapr's own application gets what is published, also raw, again after errors, and as dead letters.
func TestDaprsOwnSubscriber(t *testing.T) {
	app := startOwn(t, "pubsub-subscriber")
	c := startSidecar(t, t.TempDir(), "--dapr-app", "http://"+ownAddress).client(t)
	send := func(topic, message string) func() {
		return func() {
			publish(t, c, topic+"-http", strconv.Quote(message), client.PublishEventWithContentType("application/json"))
		}
	}
	for _, topic := range []string{"pubsub-a-topic", "pubsub-b-topic", "pubsub-raw-topic", "pubsub-dead-topic", "pubsub-deadletter-topic",
		"pubsub-def-bulk-topic"} {
		app.gets(topic, "first", send(topic, "first"))
	}
	for _, how := range []string{"retry", "error", "invalid-status"} {
		if _, err := app.call("set-respond-" + how); err != nil {
			t.Fatal(err)
		}
		send("pubsub-a-topic", how)()
		send("pubsub-dead-topic", how)()
		time.Sleep(100 * time.Millisecond) // for some attempts
		if _, err := app.call("set-respond-success"); err != nil {
			t.Fatal(err)
		}
		app.gets("pubsub-a-topic", how, nil)
		app.gets("pubsub-deadletter-topic", how, nil)
	}
}

// Dapr's own application has its events routed by their types.
func TestDaprsOwnRouting(t *testing.T) {
	app := startOwn(t, "pubsub-subscriber-routing")
	c := startSidecar(t, t.TempDir(), "--dapr-app", "http://"+ownAddress).client(t)
	routes(t, app, c, "pubsub-routing-http", strings.Clone)
}

// routes publishes an event of each type that has a route of its own. kept is what the application keeps of a text of JSON.
func routes(t *testing.T, app own, c client.Client, topic string, kept func(text string) string) {
	t.Helper()
	for _, route := range []string{"A", "B", "C"} {
		app.gets("route-"+map[string]string{"A": "a", "B": "b", "C": "c"}[route], kept(route), func() {
			err := c.PublishEvent(context.Background(), "messagebus", topic, `"`+route+`"`,
				client.PublishEventWithContentType("application/json"),
				client.PublishEventWithMetadata(map[string]string{"cloudevent.type": "myevent." + route}))
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

// Dapr's own application gets over gRPC what is published, also raw and in bulk.
func TestDaprsOwnSubscriberOverGRPC(t *testing.T) {
	app := startOwn(t, "pubsub-subscriber_grpc")
	c := startSidecar(t, t.TempDir(), "--dapr-app", "grpc://"+ownAddress).client(t)
	for _, topic := range []string{"pubsub-a-topic", "pubsub-b-topic", "pubsub-raw-topic", "pubsub-bulk-topic", "pubsub-ce-bulk-topic",
		"pubsub-def-bulk-topic"} {
		data := []byte(`"first"`)
		if topic == "pubsub-raw-topic" { // in which it expects a text of JSON within a text of JSON
			data = []byte(`"\"first\""`)
		}
		app.gets(topic, "first", func() { publish(t, c, topic+"-grpc", data, client.PublishEventWithContentType("application/json")) })
	}
	app.gets("pubsub-raw-bulk-topic", "first", func() {
		publish(t, c, "pubsub-raw-bulk-topic-grpc", "first", client.PublishEventWithContentType("text/plain"))
	})
}

// Dapr's own application has its events routed by their types over gRPC.
func TestDaprsOwnRoutingOverGRPC(t *testing.T) {
	app := startOwn(t, "pubsub-subscriber-routing_grpc")
	c := startSidecar(t, t.TempDir(), "--dapr-app", "grpc://"+ownAddress).client(t)
	routes(t, app, c, "pubsub-routing-grpc", strconv.Quote)
}
