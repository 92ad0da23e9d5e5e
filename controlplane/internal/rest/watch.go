package rest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sluice-bus/sluice/controlplane/internal/fleet"
	"github.com/sluice-bus/sluice/controlplane/internal/health"
	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/internal/httpapi/coding"
	"github.com/sluice-bus/sluice/sdk/wire"
)

const (
	// beatEvery is how often a watch without changes writes a line, so that the client knows that it lives.
	beatEvery = 15 * time.Second
	// totalsList is the list of the one object with the numbers of the overview.
	totalsList = "totals"
)

// watchLists are the lists that can be watched, in the order in which their changes are written.
var watchLists = []string{"overview", "sidecar", "topic", "policy"}

// watchRoute has the changes of lists.
func (h *handler) watchRoute() httpapi.Route {
	return httpapi.Route{
		Pattern: "GET /v1/watch", Summary: "the changes of the overview and the lists, as server-sent events", Query: []httpapi.Param{
			httpapi.OneOf("list", "only this list; may be repeated", watchLists...).List(),
			httpapi.Text("name", "only the objects of this name; may be repeated").List(),
			httpapi.Text("prefix", "only objects whose names begin so"),
		},
		Headers: []httpapi.Param{httpapi.Text("Last-Event-ID", "the id of the last event that was read")},
		Answers: []httpapi.Answer{{Status: http.StatusOK, Doc: "the changes", Content: httpapi.Content{"text/event-stream": {"type": "string"}}}},
		Errors:  []wire.Code{wire.Overloaded}, Serve: h.known(h.watch),
	}
}

// watched reads the lists for the feed.
func (h *handler) watched() map[string]func() []item {
	return map[string]func() []item{
		"overview": h.watchedIncidents, totalsList: h.watchedTotals, "sidecar": h.watchedSidecars, "topic": h.watchedTopics,
		"policy": h.watchedPolicies,
	}
}

func (h *handler) watchedTotals() []item {
	t := h.Health.Overview().Totals
	return []item{{id: t, show: t}}
}

func (h *handler) watchedIncidents() (items []item) {
	for _, i := range h.Health.Overview().Incidents {
		id := struct {
			Kind string `json:"kind"`
			health.Subject
		}{i.Kind, i.Subject}
		name := strings.Join([]string{i.Kind, i.NodeID, i.Store, i.Topic, i.Group}, "\x00")
		items = append(items, item{name: name, id: id, show: i})
	}
	return items
}

func (h *handler) watchedSidecars() (items []item) {
	for _, s := range h.Registry.Sidecars() {
		body := showSidecar(s)
		same := body
		if s.Connected {
			same.LastSeen.Time = time.Time{} // it is always now
		}
		id := struct {
			NodeID  string `json:"node_id"`
			StoreID string `json:"store_id"`
		}{s.NodeID, s.StoreID}
		items = append(items, item{name: sidecarList.name(&s), id: id, show: body, same: same})
	}
	return items
}

// watchedTopic is a topic without its use by each sidecar, which would be most of what is sent.
type watchedTopic struct {
	fleet.Topic
	BySidecar struct{} `json:"by_sidecar,omitzero"`
}

func (h *handler) watchedTopics() (items []item) {
	state := h.Catalog.State()
	for _, t := range h.knownTopics(false, state) {
		showTopic(&t, state)
		items = append(items, item{name: t.Topic, id: map[string]string{"topic": t.Topic}, show: watchedTopic{Topic: t}})
	}
	return items
}

func (h *handler) watchedPolicies() (items []item) {
	for _, e := range h.Catalog.State().Entries {
		items = append(items, item{name: e.Policy.Name, id: map[string]string{"name": e.Policy.Name}, show: e, same: e.Version})
	}
	return items
}

// watch writes what changes, until the client goes or the control plane stops.
func (h *handler) watch(w http.ResponseWriter, r *request) error {
	leave, err := r.enter(budget.Watches)
	if err != nil {
		return err
	}
	defer leave()
	now, err := h.feed.look(time.Now())
	if err != nil {
		return err
	}
	out := newEvents(w, r)
	defer out.close()
	sent, known := h.feed.since(r.Header.Get("Last-Event-ID"))
	if !known {
		sent = at(now)
		out.event("reset", h.feed.id(sent), struct{}{})
	}
	lists, names := r.List("list"), r.List("name")
	if len(lists) == 0 {
		lists = watchLists
	}
	wanted := func(name string) bool {
		name, _, _ = strings.Cut(name, "\x00") // a sidecar's store is no part of its name
		return strings.HasPrefix(name, r.Text("prefix")) && (len(names) == 0 || slices.Contains(names, name))
	}
	tick := time.NewTicker(feedEvery)
	defer tick.Stop()
	for out.err == nil {
		if now, err = h.feed.look(time.Now()); err != nil {
			return nil // the answer has begun; the client tries again
		}
		for i, list := range watchLists {
			after := sent[i]
			sent[i] = now // an event's id is the position behind it
			if slices.Contains(lists, list) {
				h.writeChanges(out, list, after, sent, wanted)
			}
		}
		out.flush()
		select {
		case <-tick.C:
		case <-h.Stopping:
			return nil
		case <-r.Context().Done():
			return nil
		}
	}
	return nil
}

// writeChanges writes the changes of a list after a turn, if there are any.
func (h *handler) writeChanges(out *events, list string, after int64, sent position, wanted func(string) bool) {
	data := struct {
		changes
		Totals json.RawMessage `json:"totals,omitempty"`
	}{}
	if list == "overview" {
		if totals := h.feed.after(totalsList, after, func(string) bool { return true }); len(totals.Changed) > 0 {
			data.Totals = totals.Changed[0]
		}
		wanted = func(string) bool { return true }
	}
	data.changes = h.feed.after(list, after, wanted)
	if len(data.Changed)+len(data.Removed) > 0 || data.Totals != nil {
		out.event(list, h.feed.id(sent), data)
	}
}

// events writes server-sent events. After an error it does nothing.
type events struct {
	control *http.ResponseController
	to      io.Writer // w, or enc
	coding  string
	enc     coding.Encoder // nil: not compressed
	pending bytes.Buffer
	held    *budget.Held // has it counted
	wrote   time.Time
	err     error
}

func newEvents(w http.ResponseWriter, r *request) *events {
	e := &events{
		control: http.NewResponseController(w), to: w, coding: coding.Negotiate(r.Header["Accept-Encoding"]), wrote: time.Now(), held: r.held,
	}
	header := w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Add("Vary", "Accept-Encoding")
	if e.coding != coding.Identity {
		header.Set("Content-Encoding", e.coding)
		e.enc = coding.Get(e.coding, w)
		e.held.Share.Take(coding.EncoderBytes)
		e.to = e.enc
	}
	return e
}

func (e *events) event(name, id string, data any) {
	text, err := encode(data)
	if err == nil {
		err = e.held.TryTake(2 * len(text)) // the buffer makes room for as much again
	}
	if err != nil {
		e.err = err // the answer has begun: the client comes again, and goes on
		return
	}
	fmt.Fprintf(&e.pending, "event: %s\nid: %s\ndata: %s\n\n", name, id, bytes.TrimSpace(text))
}

// flush brings what was written to the client, or after some silence a comment.
func (e *events) flush() {
	if e.pending.Len() == 0 {
		if time.Since(e.wrote) < beatEvery {
			return
		}
		e.pending.WriteString(":\n\n")
	}
	e.wrote = time.Now()
	_ = e.control.SetWriteDeadline(time.Now().Add(answerTimeout)) // a writer without deadlines, as in tests, cannot block
	if _, e.err = e.to.Write(e.pending.Bytes()); e.err == nil && e.enc != nil {
		e.err = e.enc.Flush()
	}
	if e.err == nil {
		e.err = e.control.Flush()
	}
	e.pending = bytes.Buffer{}
	e.held.Free()
}

func (e *events) close() {
	if e.enc == nil {
		return
	}
	if e.err == nil {
		_ = e.enc.Close()
	}
	coding.Put(e.coding, e.enc)
	e.held.Share.Give(coding.EncoderBytes)
}
