package rest

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"

	"github.com/sluice-bus/sluice/controlplane/internal/forward"
	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/internal/schema"
	"github.com/sluice-bus/sluice/sdk/wire"
)

const (
	// sampled is how many of a topic's latest events a schema is compared with, and maxSampleBytes how many bytes
	// they may have.
	sampled        = 200
	maxSampleBytes = 16 << 20
	// maxExamples bounds the refused events that an answer names.
	maxExamples = 10
)

// sampleBody says with which events a schema is compared.
type sampleBody struct {
	Store string `json:"store"`
	Topic string `json:"topic"`
}

// sampledBody is what a schema does to stored events.
type sampledBody struct {
	Checked  int           `json:"checked"`
	Refused  int           `json:"refused"`
	Examples []refusedBody `json:"examples"`
}

// refusedBody is an event that a schema refuses.
type refusedBody struct {
	ID      string `json:"id"`
	Pointer string `json:"pointer"` // of the value in the payload
	Reason  string `json:"reason"`
}

// readSample reads the member events of a check; nil: it has none.
func readSample(fields map[string]json.RawMessage) (*sampleBody, error) {
	text, given := fields["events"]
	if !given {
		return nil, nil
	}
	delete(fields, "events")
	what, err := members(text, "store", "topic")
	if err != nil {
		return nil, err
	}
	var s sampleBody
	if json.Unmarshal(what["store"], &s.Store) != nil || json.Unmarshal(what["topic"], &s.Topic) != nil || s.Store == "" || s.Topic == "" {
		return nil, wire.Errorf(wire.BadRequest, `field "events" must have a "store" and a "topic", as texts`)
	}
	return &s, nil
}

// sample compares a schema with the latest events of a topic, which a sidecar reads for the sender.
func (h *handler) sample(r *request, text string, of sampleBody) (*sampledBody, error) {
	if err := r.sender.may(string(access.RoleReader)); err != nil {
		return nil, err
	}
	compiled, err := schema.Compile(text)
	if err != nil {
		return nil, wire.Errorf(wire.InvalidPolicy, "schema.json_schema: %v", err)
	}
	ask, err := http.NewRequestWithContext(r.Context(), http.MethodGet, "/", nil)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"Authorization", userHeader} { // for another control plane
		ask.Header[name] = r.Header.Values(name)
	}
	query := url.Values{"topic": {of.Topic}, "order": {"desc"}, "limit": {strconv.Itoa(sampled)}}
	answer := &kept{header: http.Header{}, status: http.StatusOK}
	err = h.Forward.Serve(answer, ask, forward.Request{
		Store: of.Store, URL: url.URL{Path: "/replay", RawQuery: query.Encode()},
		As: forward.Person{Name: r.sender.Name, Role: access.Role(r.sender.Role), Topics: r.sender.Topics},
	})
	switch {
	case err != nil:
		return nil, err
	case answer.full:
		return nil, wire.Errorf(wire.PayloadTooLarge, "the latest %d events of %s have more than %d MiB", sampled, of.Topic, maxSampleBytes>>20)
	case answer.status != http.StatusOK:
		return nil, answer.err()
	}
	return checkAll(compiled, answer.body.Bytes())
}

// checkAll compares a schema with the events of a replay's answer.
func checkAll(compiled *schema.Schema, answer []byte) (*sampledBody, error) {
	var page struct {
		Events []struct {
			ID      string          `json:"id"`
			Payload json.RawMessage `json:"payload"` // nil: it is not JSON
		} `json:"events"`
	}
	if err := json.Unmarshal(answer, &page); err != nil {
		return nil, err
	}
	found := &sampledBody{Checked: len(page.Events), Examples: []refusedBody{}}
	for _, e := range page.Events {
		v := &schema.Violation{Msg: "is not JSON"}
		if e.Payload != nil {
			v = compiled.Check(e.Payload)
		}
		if v == nil {
			continue
		}
		if found.Refused++; len(found.Examples) < maxExamples {
			found.Examples = append(found.Examples, refusedBody{e.ID, v.Pointer, v.Msg})
		}
	}
	return found, nil
}

// kept keeps an answer up to maxSampleBytes.
type kept struct {
	header http.Header
	status int
	body   bytes.Buffer
	full   bool
}

func (k *kept) Header() http.Header    { return k.header }
func (k *kept) WriteHeader(status int) { k.status = status }

func (k *kept) Write(p []byte) (int, error) {
	if k.full = k.full || k.body.Len()+len(p) > maxSampleBytes; !k.full {
		k.body.Write(p)
	}
	return len(p), nil
}

// err is the error that the answer has.
func (k *kept) err() error {
	var told struct {
		Error string    `json:"error"`
		Code  wire.Code `json:"code"`
	}
	if json.Unmarshal(k.body.Bytes(), &told) != nil || told.Code.HTTPStatus() != k.status {
		return wire.Errorf(wire.PartialFleet, "the sidecar answered with status %d", k.status)
	}
	return wire.Errorf(told.Code, "%s", told.Error)
}
