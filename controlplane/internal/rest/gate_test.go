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
	"github.com/sluice-bus/sluice/internal/budget"
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
	atOnce := int(budget.ControlPlanePlaces()[budget.Checks])
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
	for range 20 - atOnce { // the others wait
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
	for answered := 0; answered < atOnce+1; {
		select {
		case <-s.begun: // one that the editor's has interrupted begins again
			if len(s.begun) > 0 {
				t.Error("two are worked out at once")
			}
			s.end <- struct{}{}
		case status := <-answers:
			if answered++; status != 200 {
				t.Errorf("one that waited: %d", status)
			}
		}
	}
	all.Wait()
}

// costly checks schemas until it is interrupted, the first time.
type costly struct {
	Catalog
	begun chan struct{}
}

func (s costly) CheckSchema(ctx context.Context, _, _ string, _ policy.Compatibility) ([]string, error) {
	select {
	case s.begun <- struct{}{}:
		<-ctx.Done()
	default:
	}
	return nil, ctx.Err()
}

// A viewer's check of a schema holds up no change of a policy, and is answered after it.
func TestChecksHoldUpNoChange(t *testing.T) {
	s := costly{begun: make(chan struct{}, 1)}
	a := newAPI(t, func(c *Config) { s.Catalog = c.Catalog; c.Catalog = s; c.Access = tokens{} })
	checked := make(chan *httptest.ResponseRecorder)
	go func() {
		checked <- a.send("POST", "/v1/policies/a/schemas/check", `{"json_schema":{}}`, "Authorization", "Bearer "+viewer)
	}()
	<-s.begun
	s.begun <- struct{}{}
	if w := a.send("PUT", "/v1/policies/a", `{"paused":true}`, "Authorization", "Bearer "+editor); w.Code != 201 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := <-checked; w.Code != 200 || !strings.Contains(w.Body.String(), `"compatible":true`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
