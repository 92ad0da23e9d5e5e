package sluicetest

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"

	"github.com/sluice-bus/sluice/sdk/wire"
)

func (s *Sidecar) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ws", s.serveSocket)
	mux.HandleFunc("POST /v1/topics/{topic}/events", s.servePublish)
	mux.HandleFunc("GET /v1/topics", s.serveTopics)
	mux.HandleFunc("GET /v1/topics/{topic}/groups", s.serveGroups)
	mux.HandleFunc("GET /v1/topics/{topic}/groups/{group}", s.serveGroup)
	mux.HandleFunc("GET /replay", s.serveReplay)
	mux.HandleFunc("GET /export", s.serveExport)
	mux.HandleFunc("GET /v1/status", s.serveStatus)
	return mux
}

func answer(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body) // nobody is left to tell
}

func answerJSON(w http.ResponseWriter, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		panic(err) // only values that marshal are answered
	}
	answer(w, http.StatusOK, body)
}

func refuse(w http.ResponseWriter, err *wire.Error) {
	answer(w, err.Code.HTTPStatus(), wire.AppendErrorBody(nil, err))
}

func (s *Sidecar) servePublish(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	name := r.PathValue("topic")
	if r.Header.Get("Content-Type") == "application/x-ndjson" {
		var items []wire.PublishItem
		for line := range bytes.Lines(body) {
			items = append(items, wire.ParsePublishLine(line, wire.DefaultLimits()))
		}
		answer(w, http.StatusOK, wire.AppendResultsBody(nil, s.publishAll(name, items)))
		return
	}
	item := wire.PublishItem{Event: wire.Event{
		ID: r.Header.Get("Sluice-Id"), Topic: name, Key: r.Header.Get("Sluice-Key"), Payload: body,
		Binary: r.Header.Get("Content-Type") == "application/octet-stream",
	}}
	result := s.publishAll(name, []wire.PublishItem{item})[0]
	if result.Err != nil {
		refuse(w, result.Err)
		return
	}
	answer(w, http.StatusCreated, wire.AppendReceiptBody(nil, &result.Receipt))
}

type partition struct {
	Partition int `json:"partition"`
	First     int `json:"first"`
	Head      int `json:"head"`
}

type topicInfo struct {
	Topic      string      `json:"topic"`
	Partitions []partition `json:"partitions"`
}

func (s *Sidecar) serveTopics(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []topicInfo{}
	for _, name := range slices.Sorted(maps.Keys(s.topics)) {
		list = append(list, topicInfo{name, []partition{{First: 1, Head: len(s.topics[name].events)}}})
	}
	answerJSON(w, map[string]any{"topics": list})
}

func (s *Sidecar) serveGroups(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := slices.Sorted(maps.Keys(s.topic(r.PathValue("topic")).groups))
	if names == nil {
		names = []string{}
	}
	answerJSON(w, map[string]any{"groups": names})
}

func (s *Sidecar) serveGroup(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.topic(r.PathValue("topic"))
	g := t.groups[r.PathValue("group")]
	if g == nil {
		refuse(w, wire.Errorf(wire.NotFound, "no group %q", r.PathValue("group")))
		return
	}
	members := []map[string]any{}
	total := 0
	for _, m := range t.subs {
		if m.group != g {
			continue
		}
		total += len(m.inflight)
		members = append(members, map[string]any{
			"id": "m" + strconv.Itoa(len(members)+1), "inflight": len(m.inflight), "max_inflight": m.maxInflight,
			"paused": m.paused, "blocked_by": "caught_up",
		})
	}
	lag := len(t.events) - g.acked
	answerJSON(w, map[string]any{
		"topic": r.PathValue("topic"), "group": r.PathValue("group"), "lag": lag, "inflight": total, "members": members,
		"partitions": []map[string]any{{"partition": 0, "cursor": g.acked + 1, "head": len(t.events), "lag": lag, "inflight": total}},
	})
}

// serveReplay pages by place in the log; cursor is that place.
func (s *Sidecar) serveReplay(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	query := r.URL.Query()
	name, limit := query.Get("topic"), 1000
	events := s.topic(name).events
	if n, err := strconv.Atoi(query.Get("limit")); err == nil {
		limit = n
	}
	start, _ := strconv.Atoi(query.Get("cursor")) // none is 0
	if id := query.Get("afterId"); id != "" {
		start = slices.IndexFunc(events, func(e *wire.Event) bool { return e.ID == id }) + 1
		if start == 0 {
			refuse(w, wire.Errorf(wire.NotFound, "no event %q", id))
			return
		}
	}
	start = min(start, len(events))
	end := min(start+limit, len(events))
	page := map[string]any{"topic": name, "count": end - start}
	texts := []json.RawMessage{}
	for _, e := range events[start:end] {
		texts = append(texts, e.AppendJSON(nil))
	}
	page["events"] = texts
	if end < len(events) {
		page["next"] = strconv.Itoa(end)
	}
	answerJSON(w, page)
}

func (s *Sidecar) serveExport(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	w.Header().Set("Content-Type", "application/x-ndjson")
	for i, e := range s.Events(query.Get("topic")) {
		if i > 0 && i == s.opts.BreakExportAfter {
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
		if key := query.Get("key"); key != "" && key != e.Key {
			continue
		}
		_, _ = w.Write(append(e.AppendJSON(nil), '\n')) // nobody is left to tell
	}
}

func (s *Sidecar) serveStatus(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answerJSON(w, map[string]any{
		"version": "test", "node_id": "stand-in", "store": map[string]string{"url": "memory:", "state": "ok"},
		"policies": []any{map[string]string{"name": "*", "version": "1", "source": "file"}}, "connections": len(s.sockets),
		"queues": map[string]int{}, "subscriptions": 0, "spool": map[string]int{"events": 0, "bytes": 0}, "peers": []any{},
	})
}
