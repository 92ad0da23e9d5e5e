package dapr

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/client"
	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/protocol"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
	cetest "github.com/cloudevents/sdk-go/v2/test"
)

// receiver is an endpoint of CloudEvents' SDK.
type receiver struct {
	addr   string
	events chan event.Event
}

func startReceiver(t *testing.T) *receiver {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &receiver{ln.Addr().String(), make(chan event.Event, 100)}
	c, err := client.NewHTTP(cehttp.WithListener(ln))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.StartReceiver(ctx, func(e event.Event) { r.events <- e }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return r
}

// next is the next event, which must be valid and equal to the one that was sent: extensions come back as text.
func (r *receiver) next(t *testing.T, sent event.Event) {
	t.Helper()
	select {
	case got := <-r.events:
		same(t, sent, got)
	case <-time.After(patience):
		t.Fatal("no event came")
	}
}

func same(t *testing.T, sent, got event.Event) {
	t.Helper()
	cetest.AssertEvent(t, cetest.ConvertEventExtensionsToString(t, got),
		cetest.IsValid(), cetest.IsEqualTo(cetest.ConvertEventExtensionsToString(t, sent)))
}

// samples are the events that, the SDK says, "should be handled correctly by all event-processing code", and some of ours.
func samples(t *testing.T) (taken, refused []event.Event) {
	t.Helper()
	for _, e := range cetest.Events() {
		if e.SpecVersion() == event.CloudEventsVersionV1 {
			taken = append(taken, e)
		} else {
			refused = append(refused, e)
		}
	}
	for contentType, data := range map[string]any{
		"application/json": map[string]any{"n": 1.5, "text": "ö"}, "text/plain; charset=utf-8": "grün\n", "application/xml": []byte("<a/>"),
		"application/octet-stream": []byte{0, 0xFF, '\n'}, "application/json; charset=utf-8": []any{1, nil, true},
	} {
		e := cetest.FullEvent()
		e.SetID(strings.NewReplacer("/", "-", ";", "", " ", "").Replace(contentType))
		e.SetSubject("a/b?c=d") // the SDK neither encodes nor decodes what a header cannot hold as it is
		if err := e.SetData(contentType, data); err != nil {
			t.Fatal(err)
		}
		taken = append(taken, e)
	}
	return taken, refused
}

// What CloudEvents' SDK publishes, it reads as it was: pushed, replayed and exported, in each mode of HTTP.
func TestCloudEventsSDK(t *testing.T) {
	binary, structured := startReceiver(t), startReceiver(t)
	push := write(t, "push.yaml", fmt.Sprintf("- {topic: t, group: b, url: 'http://%s', format: cloudevents}\n"+
		"- {topic: t, group: s, url: 'http://%s', format: cloudevents-structured}\n", binary.addr, structured.addr))
	s := startSidecar(t, t.TempDir(), "--push", push)
	s.awaitMembers(t, "b", "s")
	taken, refused := samples(t)
	url := "http://" + s.HTTP + "/v1/topics/t/events"
	target, err := cehttp.New(cehttp.WithTarget(url))
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(target) // NewHTTP's adds the time
	if err != nil {
		t.Fatal(err)
	}
	modes := map[string]func(context.Context) context.Context{"binary": binding.WithForceBinary, "structured": binding.WithForceStructured}
	sent := map[string]event.Event{}
	for mode, in := range modes {
		cetest.EachEvent(t, taken, func(t *testing.T, e event.Event) {
			e = e.Clone()
			e.SetID(mode + "-" + e.ID())
			sent[e.ID()] = e
			if result := c.Send(in(t.Context()), e); !protocol.IsACK(result) {
				t.Fatal(result)
			}
			binary.next(t, e)
			structured.next(t, e)
		})
		cetest.EachEvent(t, refused, func(t *testing.T, e event.Event) {
			var result *cehttp.Result
			if got := c.Send(in(t.Context()), e); !protocol.ResultAs(got, &result) || result.StatusCode != http.StatusBadRequest ||
				!strings.Contains(got.Error(), "1.0") {
				t.Errorf("version %s: %v", e.SpecVersion(), got)
			}
		})
	}
	batch, err := cehttp.NewHTTPRequestFromEvents(t.Context(), "http://"+s.HTTP+"/v1/topics/batch/events", taken)
	if err != nil {
		t.Fatal(err)
	}
	fetch(t, batch)
	for query, want := range map[string]map[string]event.Event{
		"/export?ndjson=0&topic=t": sent, "/export?ndjson=0&topic=batch": byID(taken), "/replay?topic=t": sent, "/replay?topic=batch": byID(taken),
	} {
		t.Run(query, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+s.Replay+query+"&format=cloudevents", nil)
			if err != nil {
				t.Fatal(err)
			}
			list := fetch(t, req)
			if strings.HasPrefix(query, "/replay") {
				var page struct{ Events json.RawMessage }
				if err := json.Unmarshal(list, &page); err != nil {
					t.Fatal(err)
				}
				list = page.Events
			}
			got, err := cehttp.NewEventsFromHTTPResponse(&http.Response{
				Header: http.Header{"Content-Type": {event.ApplicationCloudEventsBatchJSON}}, Body: io.NopCloser(bytes.NewReader(list)),
			})
			if err != nil || len(got) != len(want) {
				t.Fatalf("%d events of %d, %v", len(got), len(want), err)
			}
			for _, e := range got {
				same(t, want[e.ID()], e)
			}
		})
	}
}

func byID(events []event.Event) map[string]event.Event {
	list := map[string]event.Event{}
	for _, e := range events {
		list[e.ID()] = e
	}
	return list
}

// fetch is the answer to a request, which must succeed.
func fetch(t *testing.T, req *http.Request) []byte {
	t.Helper()
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s %s %v", res.Status, body, err)
	}
	return body
}

// awaitMembers waits until groups of topic t have members: a group begins at the latest event.
func (s *sidecar) awaitMembers(t *testing.T, groups ...string) {
	t.Helper()
	for _, group := range groups {
		for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
			res, err := http.Get("http://" + s.HTTP + "/v1/topics/t/groups/" + group)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(res.Body)
			_ = res.Body.Close()
			if bytes.Contains(body, []byte(`"blocked_by"`)) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: %s", group, body)
			}
		}
	}
}
