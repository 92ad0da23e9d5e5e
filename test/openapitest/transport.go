package openapitest

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"sync"
)

// Transport fails requests that were accepted, and answers, that are not as the server describes them. Servers without a description,
// and the bodies of answers that are not read to their end, are not checked.
type Transport struct {
	Next http.RoundTripper

	mu     sync.Mutex
	byHost map[string]*Description // nil: it has none
}

// parsed are the descriptions by their texts: those of several servers are mostly equal.
var parsed sync.Map

// RoundTrip is that of http.RoundTripper.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	var sent []byte
	if req.GetBody != nil {
		body, err := req.GetBody()
		if err != nil {
			return nil, err
		}
		if sent, err = io.ReadAll(body); err != nil {
			return nil, err
		}
	}
	res, err := t.Next.RoundTrip(req)
	switch {
	case err != nil:
		return nil, err
	case req.Method == http.MethodHead, res.StatusCode == http.StatusSwitchingProtocols, res.Header.Get("Content-Encoding") != "":
		return res, nil
	}
	stream := res.Header.Get("Content-Type") == "text/event-stream"
	res.Body = &checkedBody{ReadCloser: res.Body, stream: stream, check: func(received []byte) error {
		err := t.check(req, func(d *Description) error {
			if res.StatusCode < 300 && !bytes.Contains(received, []byte(`"code":`)) { // no part was refused
				if err := d.CheckRequest(req.Method, req.URL, req.Header, sent); err != nil {
					return fmt.Errorf("accepted, though %w", err)
				}
			}
			return d.CheckAnswer(req.Method, req.URL.EscapedPath(), res.StatusCode, res.Header.Get("Content-Type"), received)
		})
		if err != nil {
			return fmt.Errorf("%s: not as GET %s has it: %w", res.Status, Path, err)
		}
		return nil
	}}
	return res, nil
}

// check checks by the description of the request's server. An address may be another server's after a while.
func (t *Transport) check(req *http.Request, by func(*Description) error) error {
	t.mu.Lock()
	known, asked := t.byHost[req.URL.Host]
	t.mu.Unlock()
	if asked {
		if known == nil {
			return nil
		}
		if err := by(known); err == nil {
			return nil
		}
	}
	d, err := t.ask(req)
	if err != nil || d == nil {
		return err
	}
	return by(d)
}

// ask asks the request's server for its description, as who made the request.
func (t *Transport) ask(req *http.Request) (*Description, error) {
	q, err := http.NewRequestWithContext(req.Context(), http.MethodGet, req.URL.Scheme+"://"+req.URL.Host+Path, nil)
	if err != nil {
		return nil, err
	}
	if token := req.Header.Get("Authorization"); token != "" {
		q.Header.Set("Authorization", token)
	}
	res, err := t.Next.RoundTrip(q)
	if err != nil {
		return nil, nil // it has ended
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK && res.StatusCode != http.StatusNotFound {
		return nil, nil
	}
	var d *Description
	if known, ok := parsed.Load(string(text)); ok {
		d = known.(*Description)
	} else if res.StatusCode == http.StatusOK {
		if d, err = Parse(text); err != nil {
			return nil, err
		}
		parsed.Store(string(text), d)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byHost == nil {
		t.byHost = map[string]*Description{}
	}
	t.byHost[req.URL.Host] = d
	return d, nil
}

// checkedBody is a body that is checked at its end.
type checkedBody struct {
	io.ReadCloser
	stream bool // of server-sent events, which has no end
	read   bytes.Buffer
	check  func(body []byte) error
}

func (b *checkedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if !b.stream {
		b.read.Write(p[:n])
		if err == io.EOF {
			if bad := b.check(b.read.Bytes()); bad != nil {
				err = bad
			}
		}
	}
	return n, err
}
