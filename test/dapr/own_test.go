package dapr

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/dapr/go-sdk/client"
)

// ownAddress is where Dapr's own applications listen.
const ownAddress = "127.0.0.1:3000"

// own is one of the applications by which Dapr tests itself, as they are in its module.
type own struct{ *testing.T }

// startOwn builds and starts one, in a folder below tests/apps.
func startOwn(t *testing.T, name string) own {
	t.Helper()
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
	o := own{t}
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if _, err := o.post("initialize"); err == nil {
			return o
		} else if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

func (o own) post(path string) (received map[string][]string, err error) {
	res, err := http.Post("http://"+ownAddress+"/"+path, "", nil)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", path, res.Status)
	}
	if path == "getMessages" {
		err = json.NewDecoder(res.Body).Decode(&received)
	}
	return received, err
}

// gets waits until the application has received a message where it says so. Until then it calls publish again and again, if that is
// not nil: a group begins at the latest event.
func (o own) gets(where, message string, publish func()) {
	o.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		if publish != nil {
			publish()
		}
		received, err := o.post("getMessages")
		if err != nil {
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
		if _, err := app.post("set-respond-" + how); err != nil {
			t.Fatal(err)
		}
		send("pubsub-a-topic", how)()
		send("pubsub-dead-topic", how)()
		time.Sleep(100 * time.Millisecond) // for some attempts
		if _, err := app.post("set-respond-success"); err != nil {
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
	for _, route := range []string{"A", "B", "C"} {
		app.gets("route-"+map[string]string{"A": "a", "B": "b", "C": "c"}[route], route, func() {
			err := c.PublishEvent(context.Background(), "messagebus", "pubsub-routing-http", `"`+route+`"`,
				client.PublishEventWithContentType("application/json"),
				client.PublishEventWithMetadata(map[string]string{"cloudevent.type": "myevent." + route}))
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}
