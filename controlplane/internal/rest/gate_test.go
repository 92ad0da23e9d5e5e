package rest

import (
	"context"
	"fmt"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-bus/sluice/controlplane/internal/catalog"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// A viewer cannot send a document that takes much memory, and no role one that takes more than some
// hundred MiB.
func TestDocumentsAreBounded(t *testing.T) {
	a := newAPI(t, func(c *Config) { c.Access = tokens{} })
	dry := func(role string, bytes int) (w *httptest.ResponseRecorder, took uint64) {
		const head, end = `{"dry_run":true,"policies":[{"name":"a","x":[`, `[]]}]}`
		body := head + strings.Repeat("[],", (bytes-len(head)-len(end))/3) + end
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		w = a.send("POST", "/v1/apply", body, "Authorization", "Bearer "+role)
		runtime.ReadMemStats(&after)
		return w, after.TotalAlloc - before.TotalAlloc
	}
	w, took := dry(viewer, policy.MaxDocumentBytes)
	refused(t, w, wire.PayloadTooLarge)
	if took > 16<<20 {
		t.Errorf("%d bytes were allocated for a viewer", took)
	}
	if w, took = dry(viewer, maxBodyBytes); took > 200<<20 {
		t.Errorf("%d bytes were allocated for a viewer's 1 MiB", took)
	}
	refused(t, w, wire.InvalidPolicy)
	w, took = dry(editor, policy.MaxDocumentBytes)
	refused(t, w, wire.InvalidPolicy)
	if !strings.Contains(w.Body.String(), "more than 1000000 values") || took > 600<<20 {
		t.Errorf("%d bytes were allocated for an editor: %.200s", took, w.Body)
	}
	refused(t, a.send("PUT", "/v1/policies/a", `{}`+strings.Repeat(" ", maxBodyBytes), "Authorization", "Bearer editor"), wire.PayloadTooLarge)
	many := make([]string, 10_000)
	for i := range many {
		many[i] = fmt.Sprintf(`{"name":"t%d","publish":{"rate":1}}`, i)
	}
	if w := a.send("POST", "/v1/apply", `{"policies":[`+strings.Join(many, ",")+`]}`, "Authorization", "Bearer editor"); w.Code != 200 {
		t.Errorf("ten thousand policies: %d %.200s", w.Code, w.Body)
	}
}

// slow counts the applies that are worked out at once, each of which waits.
type slow struct {
	Catalog
	begun, end chan struct{}
}

func (s slow) Apply(context.Context, catalog.Author, []policy.Policy, bool, bool) (catalog.Applied, error) {
	s.begun <- struct{}{}
	<-s.end
	return catalog.Applied{}, nil
}

// Applies are worked out one after another, and few may wait: those of viewers keep nobody out who
// may change something.
func TestOneApplyAtATime(t *testing.T) {
	s := slow{begun: make(chan struct{}, 100), end: make(chan struct{})}
	a := newAPI(t, func(c *Config) { s.Catalog = c.Catalog; c.Catalog = s; c.Access = tokens{} })
	apply := func(role string) *httptest.ResponseRecorder {
		return a.send("POST", "/v1/apply", `{"policies":[],"dry_run":true}`, "Authorization", "Bearer "+role)
	}
	var all sync.WaitGroup
	answers := make(chan int, 100)
	for range 20 {
		all.Go(func() { answers <- apply(viewer).Code })
	}
	for range 20 - maxWaitingApplies { // the others wait
		if status := <-answers; status != 503 {
			t.Errorf("a viewer's apply too many: %d", status)
		}
	}
	if w := apply(viewer); w.Header().Get("Retry-After") == "" {
		t.Error("no Retry-After")
	} else {
		refused(t, w, wire.Overloaded)
	}
	all.Go(func() { answers <- apply(editor).Code })
	for range maxWaitingApplies + 1 {
		<-s.begun
		if len(s.begun) > 0 {
			t.Error("two are worked out at once")
		}
		s.end <- struct{}{}
		if status := <-answers; status != 200 {
			t.Errorf("one that waited: %d", status)
		}
	}
	all.Wait()
}
