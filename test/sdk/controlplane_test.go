package sdk_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/sluicetest"
)

func controlPlane(t *testing.T, opts sluicetest.ControlPlaneOptions) *admin.ControlPlane {
	t.Helper()
	standIn := sluicetest.StartControlPlane(opts)
	t.Cleanup(standIn.Close)
	plane := &admin.ControlPlane{URL: standIn.URL, User: "alice"}
	t.Cleanup(plane.CloseIdle)
	return plane
}

func TestPolicyLife(t *testing.T) {
	plane := controlPlane(t, sluicetest.ControlPlaneOptions{})
	ctx := t.Context()
	for _, name := range []string{"orders.created", "orders.*", "*"} {
		p, err := plane.PutPolicy(ctx, name, json.RawMessage(`{"publish":{"rate":1}}`), admin.Condition{Absent: true})
		if err != nil || p.Name != name || p.Version != 1 || p.UpdatedBy != "alice (not verified)" || p.UpdatedAt.IsZero() {
			t.Fatalf("put %s: %+v, %v", name, p, err)
		}
	}
	p, err := plane.PutPolicy(ctx, "orders.*", json.RawMessage(`{"paused":true}`), admin.Condition{Version: 1})
	if err != nil || p.Version != 2 {
		t.Fatalf("put again: %+v, %v", p, err)
	}
	// A document that the control plane sent can be sent back unchanged.
	if again, err := plane.PutPolicy(ctx, "orders.*", p.Document, admin.Condition{}); err != nil || again.Version != 2 {
		t.Fatalf("put the same: %+v, %v", again, err)
	}
	if back, err := plane.RollbackPolicy(ctx, "orders.*", 1); err != nil || back.Version != 3 ||
		!strings.Contains(string(back.Document), `"rate":1`) {
		t.Fatalf("rollback: %+v, %v", back, err)
	}
	require.NoError(t, plane.DeletePolicy(ctx, "orders.*", admin.Condition{Version: 3}))
	versions, err := plane.PolicyHistory(ctx, "orders.*")
	if err != nil || len(versions) != 4 || versions[0].Policy != nil || versions[0].Action != "deleted" || versions[1].To != 1 {
		t.Fatalf("history %+v, %v", versions, err)
	}
	list, err := plane.Policies(ctx)
	if err != nil || len(list.Policies) != 2 || list.Policies[0].Name != "*" || list.Revision != 6 {
		t.Fatalf("list %+v, %v", list, err)
	}
	page, err := plane.Audit(ctx, 4, 0)
	if err != nil || len(page.Entries) != 4 || page.Next != 3 || page.Entries[0].From == nil {
		t.Fatalf("audit %+v, %v", page, err)
	}
	if page, err = plane.Audit(ctx, 4, page.Next); err != nil || len(page.Entries) != 2 || page.Next != 0 {
		t.Fatalf("the rest of the audit %+v, %v", page, err)
	}
}

func TestApplyPolicies(t *testing.T) {
	plane := controlPlane(t, sluicetest.ControlPlaneOptions{})
	apply := func(r admin.ApplyRequest, documents ...string) (actions []string) {
		t.Helper()
		for _, d := range documents {
			r.Policies = append(r.Policies, json.RawMessage(d))
		}
		result, err := plane.ApplyPolicies(t.Context(), r)
		if err != nil || result.DryRun != r.DryRun {
			t.Fatalf("%+v, %v", result, err)
		}
		for _, c := range result.Changes {
			actions = append(actions, c.Name+" "+c.Action)
		}
		return actions
	}
	const a, b = `{"name":"a","paused":true}`, `{"name":"b"}`
	for _, r := range []admin.ApplyRequest{{DryRun: true}, {}} {
		if got := apply(r, a, b); !slices.Equal(got, []string{"a create", "b create"}) {
			t.Errorf("%+v: %v", r, got)
		}
	}
	if got := apply(admin.ApplyRequest{Prune: true}, a); !slices.Equal(got, []string{"a unchanged", "b delete"}) {
		t.Errorf("prune: %v", got)
	}
	if got := apply(admin.ApplyRequest{Prune: true}); !slices.Equal(got, []string{"a delete"}) {
		t.Errorf("nothing at all: %v", got)
	}
}

func TestControlPlaneRefusals(t *testing.T) {
	bad := []wire.FieldError{{Field: "publish.rate", Message: "must be a number"}, {Field: "x", Message: "unknown key"}}
	plane := controlPlane(t, sluicetest.ControlPlaneOptions{Refuse: func(string, json.RawMessage) []wire.FieldError { return bad }})
	ctx, body := t.Context(), json.RawMessage(`{}`)
	_, err := plane.Policy(ctx, "none")
	wantCode(t, err, wire.NotFound)
	_, err = plane.PutPolicy(ctx, "a", body, admin.Condition{Version: 7})
	wantCode(t, err, wire.PreconditionFailed)
	_, err = plane.PutPolicy(ctx, "a", body, admin.Condition{})
	wantCode(t, err, wire.InvalidPolicy)
	if refusal, ok := errors.AsType[*wire.Error](err); !ok || !slices.Equal(refusal.Fields, bad) {
		t.Errorf("fields of %+v", err)
	}

	plane = controlPlane(t, sluicetest.ControlPlaneOptions{Token: "secret"})
	_, err = plane.Policies(ctx)
	wantCode(t, err, wire.Unauthorized)
	withToken := &admin.ControlPlane{URL: plane.URL, Token: "secret"}
	defer withToken.CloseIdle()
	if who, err := withToken.WhoAmI(ctx); err != nil || !reflect.DeepEqual(who, admin.Identity{Name: "token", Role: "admin", Auth: true}) {
		t.Errorf("who am I: %+v, %v", who, err)
	}
}

func wantCode(t *testing.T, err error, code wire.Code) {
	t.Helper()
	if !errors.Is(err, &wire.Error{Code: code}) {
		t.Errorf("got %v, want %s", err, code)
	}
}

func TestControlPlaneThatIsNone(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if status, err := strconv.Atoi(r.URL.Query().Get("limit")); err == nil {
			w.WriteHeader(status)
		}
		_, _ = w.Write([]byte("<html>"))
	}))
	defer server.Close()
	plane := &admin.ControlPlane{URL: server.URL, Client: server.Client()}
	for status, code := range map[int]wire.Code{403: wire.Forbidden, 502: wire.StoreUnavailable} {
		_, err := plane.Audit(t.Context(), status, 0)
		wantCode(t, err, code)
	}
	if _, err := plane.Policies(t.Context()); err == nil || !strings.Contains(err.Error(), "/v1/policies") {
		t.Errorf("a page in place of JSON: %v", err)
	}
	for _, url := range []string{"127.0.0.1:7080", "unix:", ""} {
		if _, err := (&admin.ControlPlane{URL: url}).Policies(t.Context()); err == nil ||
			!strings.Contains(err.Error(), "the control plane's address") {
			t.Errorf("%q: %v", url, err)
		}
	}
}

func TestFleet(t *testing.T) {
	share := 12.5
	plane := controlPlane(t, sluicetest.ControlPlaneOptions{
		Sidecars: func() []admin.Sidecar {
			return []admin.Sidecar{{NodeID: "s1", Connected: true, LastSeen: sluicetest.Epoch, Versions: map[string]int64{"*": 2},
				Rejected: &admin.Rejection{Policy: "*", Version: 3, Reason: "no"}}}
		},
		Topics: func() []admin.FleetTopic {
			return []admin.FleetTopic{{Topic: "orders", AllowedPerSecond: 5, Sidecars: []string{"s1"},
				BySidecar: []admin.SidecarUsage{{NodeID: "s1", SharePerSecond: &share}}, History: []admin.UsagePoint{{Allowed: 1}}}}
		},
	})
	sidecars, err := plane.Sidecars(t.Context())
	if err != nil || len(sidecars) != 1 || sidecars[0].Versions["*"] != 2 || sidecars[0].Rejected.Reason != "no" ||
		!sidecars[0].LastSeen.Equal(sluicetest.Epoch) {
		t.Errorf("sidecars %+v, %v", sidecars, err)
	}
	for _, history := range []bool{false, true} {
		topics, err := plane.FleetTopics(t.Context(), history)
		if err != nil || len(topics) != 1 || *topics[0].BySidecar[0].SharePerSecond != share || (len(topics[0].History) == 1) != history {
			t.Errorf("topics %+v, %v", topics, err)
		}
	}
}

// A sidecar tells the number of a control plane's policy, and a hash of a file's.
func TestPolicyStatusVersions(t *testing.T) {
	var status []admin.PolicyStatus
	err := json.Unmarshal(
		[]byte(`[{"name":"a","version":12,"source":"control-plane"},{"name":"b","version":"0f3a","source":"file"}]`), &status)
	want := []admin.PolicyStatus{{Name: "a", Version: "12", Source: "control-plane"}, {Name: "b", Version: "0f3a", Source: "file"}}
	if err != nil || !slices.Equal(status, want) {
		t.Errorf("%+v, %v", status, err)
	}
}
