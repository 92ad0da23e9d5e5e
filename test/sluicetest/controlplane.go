package sluicetest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
)

// ControlPlaneOptions says how a stand-in for a control plane differs from one that accepts
// everything.
type ControlPlaneOptions struct {
	// Token is asked of every request; "" asks none.
	Token string
	// Refuse returns the errors of a policy, by field; nil refuses nothing.
	Refuse func(name string, document json.RawMessage) []wire.FieldError
	// CheckSchema returns why a schema cannot become that of a policy; nil takes all.
	CheckSchema func(name string, schema json.RawMessage, compatibility string) []string
	// Sidecars and Topics are the answers about the fleet; nil is an empty fleet. They must not
	// call the stand-in.
	Sidecars func() []admin.Sidecar
	Topics   func() []admin.FleetTopic
	// Overview, Stores, Groups, Usage and Health are what a control plane says of the fleet; nil is a fleet without sidecars.
	Overview func() admin.Overview
	Stores   func() []admin.FleetStore
	Groups   func() []admin.FleetGroup
	Usage    func() []admin.Usage
	Health   func(nodeID string) (admin.SidecarHealth, bool)
}

// ControlPlane is a stand-in for a control plane: its REST API out of memory, without sidecars,
// validation or roles. Its clock begins at Epoch and goes on a second with each change.
type ControlPlane struct {
	URL string

	opts   ControlPlaneOptions
	server *httptest.Server

	mu       sync.Mutex
	revision int64
	series   int64
	history  map[string][]admin.PolicyVersion // oldest first
	audit    []admin.AuditEntry               // oldest first
}

// Epoch is when the first change is made.
var Epoch = time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)

// StartControlPlane starts one. It runs until Close.
func StartControlPlane(opts ControlPlaneOptions) *ControlPlane {
	if opts.Sidecars == nil {
		opts.Sidecars = func() []admin.Sidecar { return []admin.Sidecar{} }
	}
	if opts.Topics == nil {
		opts.Topics = func() []admin.FleetTopic { return []admin.FleetTopic{} }
	}
	if opts.Overview == nil {
		opts.Overview = func() admin.Overview { return admin.Overview{Incidents: []admin.Incident{}} }
	}
	if opts.Stores == nil {
		opts.Stores = func() []admin.FleetStore { return []admin.FleetStore{} }
	}
	if opts.Usage == nil {
		opts.Usage = func() []admin.Usage { return []admin.Usage{} }
	}
	if opts.Groups == nil {
		opts.Groups = func() []admin.FleetGroup { return []admin.FleetGroup{} }
	}
	if opts.Health == nil {
		opts.Health = func(string) (admin.SidecarHealth, bool) { return admin.SidecarHealth{}, false }
	}
	c := &ControlPlane{opts: opts, history: map[string][]admin.PolicyVersion{}}
	mux := http.NewServeMux()
	for pattern, serve := range map[string]func(*http.Request) (any, error){
		"GET /v1/policies":                       c.list,
		"GET /v1/policies/{name}":                c.get,
		"PUT /v1/policies/{name}":                c.put,
		"DELETE /v1/policies/{name}":             c.remove,
		"GET /v1/policies/{name}/history":        c.versions,
		"POST /v1/policies/{name}/rollback":      c.rollback,
		"GET /v1/policies/{name}/schemas":        c.schemas,
		"POST /v1/policies/{name}/schemas/check": c.checkSchema,
		"POST /v1/apply":                         c.apply,
		"POST /v1/series":                        c.newSeries,
		"PUT /v1/policies/{name}/groups/{group}": c.putGroup,
		"GET /v1/audit":                          c.log,
		"GET /v1/overview":                       func(*http.Request) (any, error) { return c.opts.Overview(), nil },
		"GET /v1/stores":                         func(*http.Request) (any, error) { return map[string]any{"stores": c.opts.Stores()}, nil },
		"GET /v1/usage":                          func(*http.Request) (any, error) { return map[string]any{"usage": c.opts.Usage()}, nil },
		"GET /v1/groups":                         func(*http.Request) (any, error) { return map[string]any{"groups": c.opts.Groups()}, nil },
		"GET /v1/sidecars/{node_id}":             c.health,
		"GET /v1/sidecars":                       c.sidecars,
		"DELETE /v1/sidecars/{node_id}":          c.forget,
		"GET /v1/topics":                         c.topics,
		"GET /v1/whoami":                         c.whoami,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { c.answer(w, r, serve) })
	}
	c.server = httptest.NewServer(mux)
	c.URL = c.server.URL
	return c
}

func (c *ControlPlane) newSeries(*http.Request) (any, error) {
	c.revision++
	c.series++
	return admin.Series{Series: c.series, Revision: c.revision}, nil
}

// Close ends it.
func (c *ControlPlane) Close() { c.server.Close() }

func (c *ControlPlane) answer(w http.ResponseWriter, r *http.Request, serve func(*http.Request) (any, error)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var answer any
	var err error = wire.Errorf(wire.Unauthorized, "the token is missing or wrong")
	if c.opts.Token == "" || r.Header.Get("Authorization") == "Bearer "+c.opts.Token {
		answer, err = serve(r)
	}
	w.Header().Set("Content-Type", "application/json")
	if err != nil {
		e := wire.AsError(err)
		w.WriteHeader(e.Code.HTTPStatus())
		_, _ = w.Write(codec.AppendErrorBody(nil, e)) // the client's loss
		return
	}
	if answer == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// now returns the policy of that name, or nil.
func (c *ControlPlane) now(name string) *admin.Policy {
	if all := c.history[name]; len(all) > 0 {
		return all[len(all)-1].Policy
	}
	return nil
}

// names are the names of the present policies.
func (c *ControlPlane) names() []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(c.history)) {
		if c.now(name) != nil {
			names = append(names, name)
		}
	}
	return names
}

func (c *ControlPlane) list(*http.Request) (any, error) {
	list := admin.PolicyList{Policies: []admin.Policy{}, Revision: c.revision}
	for _, name := range c.names() {
		list.Policies = append(list.Policies, *c.now(name))
	}
	return list, nil
}

func (c *ControlPlane) get(r *http.Request) (any, error) {
	if p := c.now(r.PathValue("name")); p != nil {
		return p, nil
	}
	return nil, noPolicy(r)
}

func noPolicy(r *http.Request) error {
	return wire.Errorf(wire.NotFound, "there is no policy %q", r.PathValue("name"))
}

func (c *ControlPlane) permit(r *http.Request) error {
	now, match := c.now(r.PathValue("name")), r.Header.Get("If-Match")
	switch {
	case now != nil && r.Header.Get("If-None-Match") == "*",
		now == nil && match != "",
		now != nil && match != "" && match != "*" && match != fmt.Sprintf(`"%d"`, now.Version):
		return wire.Errorf(wire.PreconditionFailed, "somebody has changed the policy")
	}
	return nil
}

func (c *ControlPlane) put(r *http.Request) (any, error) {
	name := r.PathValue("name")
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	if err := c.permit(r); err != nil {
		return nil, err
	}
	fields, err := c.fields(name, body)
	if err != nil {
		return nil, err
	}
	if r.FormValue("dry_run") == "1" {
		return c.plan(name, fields), nil
	}
	if now := c.now(name); now != nil && same(*now, fields) {
		return now, nil
	}
	c.revision++
	return c.commit(r, name, fields, 0), nil
}

// putGroup replaces one member of the policy's groups.
func (c *ControlPlane) putGroup(r *http.Request) (any, error) {
	name, limits, document := r.PathValue("name"), map[string]any{}, json.RawMessage(`{}`)
	if err := c.permit(r); err != nil {
		return nil, err
	}
	if err := decode(r, &limits); err != nil {
		return nil, err
	}
	if now := c.now(name); now != nil {
		document = now.Document
	}
	fields, err := c.fields(name, document)
	if err != nil {
		return nil, err
	}
	groups, _ := fields["groups"].(map[string]any)
	if groups = maps.Clone(groups); groups == nil {
		groups = map[string]any{}
	}
	reason, _ := limits["reason"].(string)
	delete(limits, "reason")
	groups[r.PathValue("group")] = limits
	fields["groups"] = groups
	c.revision++
	after := c.commit(r, name, fields, 0)
	versions := c.history[name]
	versions[len(versions)-1].Reason = reason
	c.audit[len(c.audit)-1].Reason = reason
	return after, nil
}

func (c *ControlPlane) health(r *http.Request) (any, error) {
	if h, ok := c.opts.Health(r.PathValue("node_id")); ok {
		return h, nil
	}
	return nil, wire.Errorf(wire.NotFound, "no sidecar %q is known", r.PathValue("node_id"))
}

func (c *ControlPlane) remove(r *http.Request) (any, error) {
	if err := c.permit(r); err != nil {
		return nil, err
	}
	if c.now(r.PathValue("name")) == nil {
		return nil, noPolicy(r)
	}
	if r.FormValue("dry_run") == "1" {
		return c.plan(r.PathValue("name"), nil), nil
	}
	c.revision++
	c.commit(r, r.PathValue("name"), nil, 0)
	return nil, nil
}

// plan is the change that putting the fields, or deleting, would make.
func (c *ControlPlane) plan(name string, fields map[string]any) admin.ApplyResult {
	return admin.ApplyResult{DryRun: true, Revision: c.revision, Changes: []admin.PolicyChange{c.change(name, fields)}}
}

func (c *ControlPlane) versions(r *http.Request) (any, error) {
	all := slices.Clone(c.history[r.PathValue("name")])
	if len(all) == 0 {
		return nil, noPolicy(r)
	}
	slices.Reverse(all)
	return map[string]any{"versions": all}, nil
}

// schemas are the schemas that a policy has had, newest first.
func (c *ControlPlane) schemas(r *http.Request) (any, error) {
	all := c.history[r.PathValue("name")]
	if len(all) == 0 {
		return nil, noPolicy(r)
	}
	versions := []admin.SchemaVersion{}
	for _, v := range all {
		var document struct {
			Schema struct {
				JSONSchema json.RawMessage `json:"json_schema"`
			}
		}
		if v.Policy == nil || json.Unmarshal(v.Policy.Document, &document) != nil {
			continue
		}
		text := document.Schema.JSONSchema
		if len(text) > 0 && string(text) != "null" && (len(versions) == 0 || string(versions[len(versions)-1].JSONSchema) != string(text)) {
			versions = append(versions, admin.SchemaVersion{Version: int64(len(versions)) + 1, At: v.At, By: v.By, JSONSchema: text})
		}
	}
	slices.Reverse(versions)
	return map[string]any{"versions": versions}, nil
}

func (c *ControlPlane) checkSchema(r *http.Request) (any, error) {
	var body struct {
		JSONSchema    json.RawMessage `json:"json_schema"`
		Compatibility string          `json:"compatibility"`
		Events        *struct{ Store, Topic string }
	}
	if err := decode(r, &body); err != nil {
		return nil, err
	}
	if len(c.history[r.PathValue("name")]) == 0 {
		return nil, noPolicy(r)
	}
	reasons := []string{}
	if c.opts.CheckSchema != nil {
		reasons = append(reasons, c.opts.CheckSchema(r.PathValue("name"), body.JSONSchema, body.Compatibility)...)
	}
	check := admin.SchemaCheck{Compatible: len(reasons) == 0, Reasons: reasons}
	if of := body.Events; of != nil { // the first of three events is refused
		check.Events = &admin.SchemaEvents{Checked: 3, Refused: 1, Examples: []admin.SchemaExample{
			{ID: "e-1", Pointer: "/n", Reason: of.Topic + " of " + of.Store},
		}}
	}
	return check, nil
}

func (c *ControlPlane) rollback(r *http.Request) (any, error) {
	var body struct{ Version int64 }
	if err := decode(r, &body); err != nil {
		return nil, err
	}
	for _, v := range c.history[r.PathValue("name")] {
		if v.Version == body.Version && v.Policy != nil {
			fields, err := c.fields(r.PathValue("name"), v.Policy.Document)
			if err != nil {
				return nil, err
			}
			c.revision++
			return c.commit(r, r.PathValue("name"), fields, body.Version), nil
		}
	}
	return nil, wire.Errorf(wire.NotFound, "there is no version %d", body.Version)
}

func (c *ControlPlane) apply(r *http.Request) (any, error) {
	var request admin.ApplyRequest
	if err := decode(r, &request); err != nil {
		return nil, err
	}
	result, wanted, bad := admin.ApplyResult{DryRun: request.DryRun}, map[string]map[string]any{}, []wire.FieldError{}
	for i, document := range request.Policies {
		var p admin.Policy
		if err := json.Unmarshal(document, &p); err != nil {
			return nil, wire.Errorf(wire.BadRequest, "policies[%d]: %v", i, err)
		}
		fields, err := c.fields(p.Name, document)
		var refusal *wire.Error
		if errors.As(err, &refusal) {
			for _, f := range refusal.Fields {
				bad = append(bad, wire.FieldError{Field: fmt.Sprintf("policies[%d].%s", i, f.Field), Message: f.Message})
			}
		}
		wanted[p.Name] = fields
		result.Changes = append(result.Changes, c.change(p.Name, fields))
	}
	if len(bad) > 0 {
		return nil, &wire.Error{Code: wire.InvalidPolicy, Msg: "not valid", Fields: bad}
	}
	for _, name := range c.names() {
		if _, kept := wanted[name]; request.Prune && !kept {
			result.Changes = append(result.Changes, c.change(name, nil))
		}
	}
	slices.SortFunc(result.Changes, func(a, b admin.PolicyChange) int { return cmp.Compare(a.Name, b.Name) })
	changes := slices.ContainsFunc(result.Changes, func(ch admin.PolicyChange) bool { return ch.Action != admin.ActionUnchanged })
	if changes && !request.DryRun {
		c.revision++
		for i, ch := range result.Changes {
			if ch.Action != admin.ActionUnchanged {
				result.Changes[i].To = c.commit(r, ch.Name, wanted[ch.Name], 0)
			}
		}
	}
	result.Revision = c.revision
	return result, nil
}

func decode(r *http.Request, into any) error {
	if err := json.NewDecoder(r.Body).Decode(into); err != nil {
		return wire.Errorf(wire.BadJSON, "the body is not JSON: %v", err)
	}
	return nil
}

// change is the change of a policy by putting the fields; nil deletes it.
func (c *ControlPlane) change(name string, fields map[string]any) admin.PolicyChange {
	ch := admin.PolicyChange{Name: name, From: c.now(name), Action: admin.ActionUpdate}
	if fields == nil {
		ch.Action = admin.ActionDelete
		return ch
	}
	to := policyOf(name, fields, 0, time.Time{}, "")
	ch.To = &to
	switch {
	case ch.From == nil:
		ch.Action = admin.ActionCreate
	case same(*ch.From, fields):
		ch.Action, ch.To = admin.ActionUnchanged, ch.From
	}
	return ch
}

// fields takes a policy's settings out of a document.
func (c *ControlPlane) fields(name string, document json.RawMessage) (map[string]any, error) {
	fields := map[string]any{}
	if err := json.Unmarshal(document, &fields); err != nil {
		return nil, wire.Errorf(wire.BadJSON, "not a JSON object: %v", err)
	}
	if c.opts.Refuse != nil {
		if bad := c.opts.Refuse(name, document); len(bad) > 0 {
			return nil, &wire.Error{Code: wire.InvalidPolicy, Msg: "not valid", Fields: bad}
		}
	}
	for _, head := range []string{"name", "version", "updated_at", "updated_by"} {
		delete(fields, head)
	}
	return fields, nil
}

// same tells whether a policy has these settings already.
func same(p admin.Policy, fields map[string]any) bool {
	again := policyOf(p.Name, fields, p.Version, p.UpdatedAt, p.UpdatedBy)
	return string(again.Document) == string(p.Document)
}

// policyOf makes a policy; one with version 0 is not kept yet.
func policyOf(name string, fields map[string]any, version int64, at time.Time, by string) admin.Policy {
	all := maps.Clone(fields)
	all["name"] = name
	if version > 0 {
		all["version"], all["updated_at"], all["updated_by"] = version, at, by
	}
	document, err := json.Marshal(all)
	if err != nil {
		panic(err) // it was JSON before
	}
	return admin.Policy{Name: name, Version: version, UpdatedAt: at, UpdatedBy: by, Document: document}
}

// commit adds a version, with nil fields a deletion, to the present revision.
func (c *ControlPlane) commit(r *http.Request, name string, fields map[string]any, to int64) *admin.Policy {
	before := c.now(name)
	v := admin.PolicyVersion{
		Version: int64(len(c.history[name])) + 1, At: Epoch.Add(time.Duration(c.revision-1) * time.Second),
		By: c.sender(r), Action: "updated", To: to,
	}
	switch {
	case fields == nil:
		v.Action = "deleted"
	case to > 0:
		v.Action = "rolled_back"
	case before == nil:
		v.Action = "created"
	}
	if fields != nil {
		p := policyOf(name, fields, v.Version, v.At, v.By)
		v.Policy = &p
	}
	c.history[name] = append(c.history[name], v)
	c.audit = append(c.audit, admin.AuditEntry{Revision: c.revision, At: v.At, By: v.By, Action: v.Action,
		Name: name, Version: v.Version, From: before, To: v.Policy})
	return v.Policy
}

func (c *ControlPlane) sender(r *http.Request) string {
	switch claim := r.Header.Get("Sluice-User"); {
	case c.opts.Token != "":
		return "token"
	case claim != "":
		return claim + " (not verified)"
	}
	return "anonymous"
}

func (c *ControlPlane) log(r *http.Request) (any, error) {
	page := admin.AuditPage{Entries: []admin.AuditEntry{}}
	limit, before := int64(100), c.revision+1
	for name, into := range map[string]*int64{"limit": &limit, "before": &before} {
		if text := r.FormValue(name); text != "" {
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				return nil, wire.Errorf(wire.BadRequest, "%s must be a whole number, not %s", name, strconv.Quote(text))
			}
			*into = n
		}
	}
	for _, e := range slices.Backward(c.audit) {
		if e.Revision >= before {
			continue
		}
		if int64(len(page.Entries)) == limit {
			page.Next = page.Entries[limit-1].Revision
			break
		}
		page.Entries = append(page.Entries, e)
	}
	return page, nil
}

func (c *ControlPlane) sidecars(r *http.Request) (any, error) {
	list := c.opts.Sidecars()
	if policy := r.URL.Query().Get("policy"); policy != "" {
		list = slices.DeleteFunc(slices.Clone(list), func(s admin.Sidecar) bool { return !c.uses(s, policy) })
	}
	return map[string]any{"sidecars": list}, nil
}

// forget takes the sidecars as they are: they are the caller's.
func (c *ControlPlane) forget(r *http.Request) (any, error) {
	if slices.ContainsFunc(c.opts.Sidecars(), func(s admin.Sidecar) bool { return s.Missing && s.NodeID == r.PathValue("node_id") }) {
		return nil, nil
	}
	return nil, wire.Errorf(wire.NotFound, "no sidecar %q is missing", r.PathValue("node_id"))
}

// uses reports whether a sidecar has a policy or, by the topics, uses its name.
func (c *ControlPlane) uses(s admin.Sidecar, policy string) bool {
	_, has := s.Versions[policy]
	return has || slices.ContainsFunc(c.opts.Topics(), func(t admin.FleetTopic) bool {
		return t.Topic == policy && slices.Contains(t.Sidecars, s.NodeID)
	})
}

func (c *ControlPlane) topics(r *http.Request) (any, error) {
	list := c.opts.Topics()
	if !strings.Contains(r.URL.RawQuery, "history=1") {
		list = slices.Clone(list)
		for i := range list {
			list[i].History = nil
		}
	}
	return map[string]any{"topics": list}, nil
}

func (c *ControlPlane) whoami(r *http.Request) (any, error) {
	return admin.Identity{Name: c.sender(r), Role: "admin", Auth: c.opts.Token != ""}, nil
}
