package ingest

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/refusal"
	"github.com/sluice-bus/sluice/sidecar/internal/session"
)

// daprEntry is one event of a bulk publish.
type daprEntry struct {
	EntryID     string            `json:"entryId"`
	Event       json.RawMessage   `json:"event"`
	ContentType string            `json:"contentType,omitempty"`
	Metadata    map[string]string `json:"metadata,omitempty"`
}

var daprEntryMembers = []string{"entryId", "event", "contentType", "metadata"}

// daprFailure is a refused entry.
type daprFailure struct {
	EntryID string    `json:"entryId"`
	Same    string    `json:"entryID"` // the spelling that Dapr's SDK for JavaScript looks for
	Error   string    `json:"error"`
	Code    wire.Code `json:"code"`
}

type daprFailures struct {
	Entries []daprFailure `json:"failedEntries"`
}

// publishDaprBulk publishes the entries of the body, and names the refused ones.
func (h *handlers) publishDaprBulk(caller *session.Session, w http.ResponseWriter, r *httpapi.Request) error {
	entries, items, bad := h.readDaprBulk(caller, w, r)
	results, err := h.publish(caller, r, items, bad)
	if err != nil {
		return err
	}
	var failed []daprFailure
	for i := range results {
		if e := results[i].Err; e != nil {
			failed = append(failed, daprFailure{EntryID: entries[i].EntryID, Same: entries[i].EntryID, Error: e.Msg, Code: e.Code})
		}
	}
	if len(failed) == 0 {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	// Dapr's clients read the failed entries from an answer with this status.
	return httpapi.WriteValue(w, http.StatusInternalServerError, daprFailures{failed})
}

func (h *handlers) readDaprBulk(caller *session.Session, w http.ResponseWriter, r *httpapi.Request) (
	[]daprEntry, []wire.PublishItem, *wire.Error,
) {
	topic := r.PathValue("topic")
	if bad := codec.CheckTopic(topic); bad != nil {
		return nil, nil, bad
	}
	meta, bad := h.daprMetadataOf(r)
	if bad != nil {
		return nil, nil, bad
	}
	content, bad := h.Bodies.Read(caller.Share(), w, r.Request, h.Limits.BatchBytes)
	if bad != nil {
		return nil, nil, bad
	}
	entries, items, bad := daprItems(topic, meta, content, h.Limits)
	shareTrace(items, (&head{Header: r.Header}).trace(h.Limits))
	return entries, items, bad
}

// daprItems makes an event of each entry; meta is the metadata of all of them. A wrong entry with an entryId of its own is refused
// alone. An entry without one makes the whole request fail.
func daprItems(topic string, meta daprMetadata, content []byte, lim wire.Limits) (
	entries []daprEntry, items []wire.PublishItem, bad *wire.Error,
) {
	seen := map[string]bool{}
	bad = eachElement(content, "entries", lim, func(text json.RawMessage) *wire.Error {
		var en daprEntry
		if err := json.Unmarshal(text, &en); err != nil {
			return wire.Errorf(wire.BadRequest, "entry %d must be an object with entryId, event, contentType and metadata, "+
				"which is an object of strings",
				len(entries))
		}
		if en.EntryID == "" || seen[en.EntryID] {
			return wire.Errorf(wire.BadRequest, "entryId of entry %d is missing, or is that of another entry: %q",
				len(entries), refusal.Shorten(en.EntryID))
		}
		seen[en.EntryID] = true
		bad := checkDaprEntry(text)
		var it wire.PublishItem
		if bad == nil {
			it, bad = en.item(topic, meta, lim)
		}
		if bad != nil {
			it = wire.PublishItem{Event: wire.Event{Topic: topic}, Err: bad}
		}
		entries, items = append(entries, en), append(items, it)
		return nil
	})
	if bad == nil && len(items) == 0 {
		bad = errEmptyBatch()
	}
	return entries, items, bad
}

// checkDaprEntry refuses a member that no entry has. Dapr's JavaScript client writes entryID, which Dapr takes, as any case.
func checkDaprEntry(text json.RawMessage) *wire.Error {
	var members map[string]json.RawMessage
	_ = json.Unmarshal(text, &members) // it was read before
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if !slices.ContainsFunc(daprEntryMembers, func(known string) bool { return strings.EqualFold(name, known) }) {
			return httpapi.UnknownMember(refusal.Shorten(name), daprEntryMembers)
		}
	}
	return nil
}

// item makes an event of an entry; meta is the request's metadata, which applies to all entries.
func (en *daprEntry) item(topic string, meta daprMetadata, lim wire.Limits) (it wire.PublishItem, bad *wire.Error) {
	if bad = meta.setAll(en.Metadata); bad != nil {
		return it, bad
	}
	if en.Event == nil {
		return it, wire.Errorf(wire.BadRequest, "event is missing")
	}
	head, bad := readHead(http.Header{"Content-Type": {en.ContentType}})
	if bad != nil {
		return it, bad
	}
	content := []byte(en.Event)
	if !head.contentType.isJSON() {
		if content, bad = en.bytes(head.contentType); bad != nil {
			return it, bad
		}
	}
	return meta.item(topic, head, content, lim)
}

// bytes are the bytes of an event that is not JSON: its string is the text, or base64.
func (en *daprEntry) bytes(of contentType) ([]byte, *wire.Error) {
	var text []byte
	ok := en.Event[0] == '"'
	if ok {
		text, ok = textOf(en.Event)
	}
	if !ok {
		return nil, wire.Errorf(wire.BadRequest, "event must be a string where contentType is %q", refusal.Shorten(en.ContentType))
	}
	if strings.HasPrefix(of.media, "text/") || strings.HasSuffix(of.media, "xml") {
		return text, nil
	}
	content, bad := base64Of(en.Event)
	if bad != nil {
		return nil, wire.Errorf(bad.Code, "event must be base64 where contentType is %q", refusal.Shorten(en.ContentType))
	}
	return content, nil
}
