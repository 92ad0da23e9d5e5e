package rest

import (
	"encoding/json"
	"maps"
	"net/http"
	"strconv"
	"strings"

	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// routes are what the API serves: each request is checked by its route, and the description for
// machines is made of them.
func (h *handler) routes() []httpapi.Route {
	var all []httpapi.Route
	for _, list := range [][]httpapi.Route{
		h.policyRoutes(), h.changeRoutes(), h.fleetRoutes(), h.healthRoutes(), {h.groupRoute(), h.effectsRoute(), h.usageRoute()},
	} {
		all = append(all, list...)
	}
	for i := range all {
		if strings.HasPrefix(all[i].Pattern, "GET ") && len(all[i].Answers) == 1 && all[i].Pattern != "GET /v1/watch" {
			all[i].Headers = append(all[i].Headers, httpapi.Text("If-None-Match", "the ETag of the answer that the client has"))
			all[i].Answers = append(all[i].Answers,
				httpapi.Answer{Status: http.StatusNotModified, Doc: "the client has it", Headers: []string{"ETag"}})
		}
		all[i].Headers = append(all[i].Headers, httpapi.Text(userHeader, "the name of who sends this, where nobody authenticates"))
	}
	unchecked := func(pattern string, serve func(http.ResponseWriter, *request) error) httpapi.Route {
		return httpapi.Route{Pattern: pattern, Serve: h.known(serve), Unchecked: true}
	}
	// Requests for liveness and readiness are anonymous.
	probe := func(pattern string, serve http.HandlerFunc) httpapi.Route {
		return httpapi.Route{Pattern: pattern, Unchecked: true, Serve: func(w http.ResponseWriter, r *httpapi.Request, _ error) {
			serve(w, r.Request)
		}}
	}
	all = httpapi.Describe(httpapi.Description{
		Title: "Sluice: the control plane", Version: h.About.Version, Schemas: sharedSchemas(), Paths: []httpapi.Param{
			httpapi.Text("name", "the name of a policy: a topic, or a prefix and a *"), httpapi.Text("node_id", "a sidecar's node id"),
			httpapi.Text("group", "a consumer group"),
		},
	}, all)
	return append(all, h.storeRoute(),
		unchecked("GET /metrics", h.metrics), unchecked("GET /debug/pprof/", h.debug),
		probe("GET /healthz", h.healthz), probe("GET /readyz", h.readyz))
}

// sharedSchemas are those of policies. A client may send back what answers add to one.
func sharedSchemas() map[string]httpapi.Schema {
	answer := httpapi.Schema(policy.PolicySchema())
	members := answer["properties"].(map[string]any)
	members["version"] = httpapi.Schema{"type": "integer", "description": "counts the changes of the policies of this name"}
	members["updated_at"] = httpapi.SchemaOf[string]()
	members["updated_by"] = httpapi.SchemaOf[string]()
	body := maps.Clone(answer)
	delete(body, "required") // the path has the name
	of := maps.Clone(members)
	of["reason"] = reasonSchema()
	body["properties"] = of
	return map[string]httpapi.Schema{"Policy": answer, "PolicyBody": body, "Policies": httpapi.ArrayOf(httpapi.Ref("Policy"))}
}

// conditions are the headers of a change that depends on a policy's version.
func conditions() []httpapi.Param {
	return []httpapi.Param{
		httpapi.Text("If-Match", "the ETag of the version that the policy must have, or *"),
		httpapi.Text("If-None-Match", "* needs that there is no such policy"),
	}
}

// policyAnswer is an answer with a policy.
func policyAnswer(status int, doc string) httpapi.Answer {
	return httpapi.Answer{Status: status, Doc: doc, Content: httpapi.JSON(httpapi.Ref("Policy")), Headers: []string{"ETag"}}
}

// ok is an answer with a T.
func ok[T any](doc string) httpapi.Answer {
	return httpapi.Answer{Status: http.StatusOK, Doc: doc, Content: httpapi.JSONOf[T]()}
}

// changeErrors are the errors of every change of policies.
var changeErrors = []wire.Code{
	wire.NotFound, wire.PreconditionFailed, wire.InvalidPolicy, wire.PayloadTooLarge, wire.Overloaded, wire.StoreUnavailable,
}

// policyRoutes read policies.
func (h *handler) policyRoutes() []httpapi.Route {
	return []httpapi.Route{{
		Pattern: "GET /v1/policies", Summary: "all policies, by name",
		Answers: []httpapi.Answer{ok[policiesBody]("the policies")}, Serve: h.known(h.listPolicies),
	}, {
		Pattern: "GET /v1/policies/{name}", Summary: "one policy", Headers: conditions(),
		Answers: []httpapi.Answer{
			policyAnswer(http.StatusOK, "the policy"),
			{Status: http.StatusNotModified, Doc: "it is the version of If-None-Match", Headers: []string{"ETag"}},
		},
		Errors: []wire.Code{wire.NotFound, wire.PreconditionFailed}, Serve: h.known(h.getPolicy),
	}, {
		Pattern: "GET /v1/policies/{name}/history", Summary: "its versions, newest first",
		Answers: []httpapi.Answer{ok[historyBody]("the versions")}, Errors: []wire.Code{wire.NotFound, wire.StoreUnavailable},
		Serve: h.known(h.history),
	}, {
		Pattern: "GET /v1/policies/{name}/schemas", Summary: "the versions of its schema, newest first",
		Answers: []httpapi.Answer{ok[schemasBody]("the versions")}, Errors: []wire.Code{wire.NotFound, wire.StoreUnavailable},
		Serve: h.known(h.schemas),
	}, {
		Pattern: "POST /v1/policies/{name}/schemas/check", Summary: "compares a schema with the versions of the policy's",
		Body: httpapi.JSONOf[struct {
			JSONSchema    json.RawMessage `json:"json_schema"`
			Compatibility string          `json:"compatibility,omitempty"`
			Events        *sampleBody     `json:"events,omitempty"`
		}](),
		Answers: []httpapi.Answer{ok[verdictBody]("whether it is compatible, and why not")},
		Errors:  []wire.Code{wire.NotFound, wire.InvalidPolicy, wire.PayloadTooLarge, wire.PartialFleet, wire.Overloaded, wire.StoreUnavailable},
		Serve:   h.known(h.checkSchema),
	}, {
		Pattern: "GET /v1/audit", Summary: "the changes of policies, newest first", Query: []httpapi.Param{
			httpapi.Whole("limit", "how many entries", 1, maxAudit).Or(strconv.Itoa(defaultAudit)),
			httpapi.Whole("before", "only entries before this revision", 1, maxRevision).Or(strconv.Itoa(maxRevision)),
		},
		Answers: []httpapi.Answer{ok[auditBody]("the changes")}, Errors: []wire.Code{wire.StoreUnavailable}, Serve: h.known(h.audit),
	}}
}

// changeRoutes change policies.
func (h *handler) changeRoutes() []httpapi.Route {
	plan := ok[changesBody]("with dry_run=1: what would change")
	return []httpapi.Route{{
		Pattern: "PUT /v1/policies/{name}", Summary: "makes or replaces a policy",
		Query: []httpapi.Param{httpapi.DryRun()}, Headers: conditions(), Body: httpapi.JSON(httpapi.Ref("PolicyBody")),
		Answers: []httpapi.Answer{
			{Status: http.StatusOK, Doc: "the policy, or with dry_run=1 what would change", Headers: []string{"ETag"},
				Content: httpapi.JSON(httpapi.Schema{"anyOf": []httpapi.Schema{httpapi.Ref("Policy"), httpapi.SchemaOf[changesBody]()}})},
			policyAnswer(http.StatusCreated, "the policy, which is new"),
		},
		Errors: changeErrors, Serve: h.known(h.putPolicy),
	}, {
		Pattern: "DELETE /v1/policies/{name}", Summary: "deletes a policy", Headers: conditions(),
		Query:   []httpapi.Param{httpapi.DryRun(), httpapi.Text("reason", "why, for the audit log")},
		Answers: []httpapi.Answer{{Status: http.StatusNoContent, Doc: "it is deleted"}, plan},
		Errors:  changeErrors, Serve: h.known(h.deletePolicy),
	}, {
		Pattern: "POST /v1/policies/{name}/rollback", Summary: "makes a version with the content of an earlier one", Headers: conditions(),
		Body: httpapi.JSONOf[struct {
			Version int64  `json:"version"`
			Reason  string `json:"reason,omitempty"`
		}](),
		Answers: []httpapi.Answer{policyAnswer(http.StatusOK, "the policy")}, Errors: changeErrors, Serve: h.known(h.rollback),
	}, {
		Pattern: "POST /v1/apply", Summary: "changes many policies at once",
		Body: httpapi.JSONOf[struct {
			Policies []json.RawMessage `json:"policies" schema:"Policies"`
			Prune    bool              `json:"prune,omitempty"`
			DryRun   bool              `json:"dry_run,omitempty"`
			Reason   string            `json:"reason,omitempty"`
		}](),
		Answers: []httpapi.Answer{ok[changesBody]("what changed, or would")}, Errors: changeErrors, Serve: h.known(h.apply),
	}, {
		Pattern: "POST /v1/series", Summary: "makes sidecars accept the policies of a restored store",
		Answers: []httpapi.Answer{ok[seriesBody]("the series")}, Errors: []wire.Code{wire.StoreUnavailable}, Serve: h.known(h.newSeries),
	}}
}

// fleetRoutes have the state of the fleet, and of this control plane.
func (h *handler) fleetRoutes() []httpapi.Route {
	return []httpapi.Route{{
		Pattern: "GET /v1/sidecars", Summary: "the sidecars", Query: append(sidecarList.params(),
			httpapi.Text("policy", "only sidecars that a change of this policy has to reach, each with its version of it")),
		Answers: []httpapi.Answer{ok[sidecarsBody]("a page of sidecars")}, Serve: h.known(h.sidecars),
	}, {
		Pattern: "DELETE /v1/sidecars/{node_id}", Summary: "forgets a missing sidecar",
		Answers: []httpapi.Answer{{Status: http.StatusNoContent, Doc: "it is forgotten"}},
		Errors:  []wire.Code{wire.NotFound, wire.StoreUnavailable}, Serve: h.known(h.forget),
	}, {
		Pattern: "GET /v1/topics", Summary: "the topics that exist, are in use, or have a policy of their own",
		Query: append(topicList.params(),
			httpapi.OneOf("history", "1 adds the last 60 seconds", "0", "1").Or("0")),
		Answers: []httpapi.Answer{ok[topicsBody]("a page of topics")}, Serve: h.known(h.topics),
	}, {
		Pattern: "GET /v1/whoami", Summary: "who the sender is",
		Answers: []httpapi.Answer{ok[whoamiBody]("name and role")}, Serve: h.known(h.whoami),
	}, {
		Pattern: "GET /v1/status", Summary: "the state of this control plane",
		Answers: []httpapi.Answer{{Status: http.StatusOK, Doc: "its state", Content: httpapi.JSON(httpapi.Schema{"type": "object"})}},
		Serve:   h.known(h.status),
	}}
}
