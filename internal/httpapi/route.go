package httpapi

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/sluice-bus/sluice/internal/httpapi/coding"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// Route is what a listener serves at one method and path. Requests are checked by it, and the
// listener's description for machines is made of it.
type Route struct {
	Pattern string // of a ServeMux, with a method
	Summary string
	Query   []Param
	// Headers are the request headers that the route reads. One that begins with Sluice- and is not
	// among them is refused.
	Headers []Param
	Body    Content // nil: none
	// Optional says that the body may be left out.
	Optional bool
	Answers  []Answer
	Errors   []wire.Code // beside those of every route
	// Unchecked says that the route takes whatever it is sent, as pages and probes do. It is left
	// out of the description.
	Unchecked bool
	// Role is the least role of the people for whom a control plane may ask a sidecar this; "": it may not.
	Role string
	// Serve answers a request; bad is why the request was refused, or nil.
	Serve func(w http.ResponseWriter, r *Request, bad error)
}

// Content is a body: its schema for each media type.
type Content map[string]Schema

// Answer is an answer to a request that is not refused.
type Answer struct {
	Status  int
	Doc     string
	Content Content // nil: none
	Headers []string
}

// Request is a request with the parameters of its query.
type Request struct {
	*http.Request
	Params
}

// read checks a request.
func (t *Route) read(r *http.Request) (*Request, error) {
	in := &Request{Request: r, Params: Params{known: t.Query}}
	if t.Unchecked {
		return in, nil
	}
	if t.Body != nil && isForeign(r.Header) { // first: the answer has a status of its own
		return in, wire.Errorf(wire.BadRequest, "Content-Encoding %.64q is not taken: gzip and zstd are, and bodies as they are",
			r.Header.Get("Content-Encoding"))
	}
	var err error
	if r.URL.RawQuery != "" {
		in.Params, err = parseParams(r.URL.RawQuery, t.Query)
	}
	if err == nil {
		err = t.checkHeaders(r.Header)
	}
	if err == nil && t.Body == nil && r.ContentLength != 0 && r.Method != http.MethodGet && r.Method != http.MethodHead {
		err = refuseBody(r)
	}
	return in, err
}

// maxNoBody bounds what is read of the body of a request whose route takes none.
const maxNoBody = 4 << 10

// refuseBody refuses the body of a change whose route takes none, unless nothing is in it, as in {}: who asks for a dry run there must
// not be taken to have asked for nothing.
func refuseBody(r *http.Request) error {
	text, err := io.ReadAll(io.LimitReader(r.Body, maxNoBody))
	var members map[string]json.RawMessage
	switch text = bytes.TrimSpace(text); {
	case err == nil && len(text) == 0:
		return nil
	case err != nil || json.Unmarshal(text, &members) != nil:
		return wire.Errorf(wire.BadRequest, "a body is not taken here: leave it out")
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		return wire.Errorf(wire.BadRequest, "member %q is not known here: no body is taken", name)
	}
	return nil
}

// isForeign reports whether a body has a content encoding that is not taken.
func isForeign(h http.Header) bool {
	_, ok := coding.OfBody(h)
	return !ok
}

// ownPrefix begins the request headers that are Sluice's own.
const ownPrefix = "Sluice-"

func (t *Route) checkHeaders(h http.Header) error {
	var first string // by name
	for name, values := range h {
		if !strings.HasPrefix(name, ownPrefix) || len(values) == 1 && find(t.Headers, name) != nil {
			continue
		}
		if first == "" || name < first {
			first = name
		}
	}
	switch {
	case first == "":
		return nil
	case find(t.Headers, first) != nil:
		return wire.Errorf(wire.BadRequest, "header %s is given %d times; give it once", first, len(h[first]))
	}
	own := slices.DeleteFunc(slices.Clone(t.Headers), func(p Param) bool { return !strings.HasPrefix(p.Name, ownPrefix) })
	return wire.Errorf(wire.BadRequest, "header %q is not known here%s", first, unknown(first, own))
}
