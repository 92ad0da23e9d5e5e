package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/sluice-bus/sluice/sdk/internal/endpoint"
)

// ControlPlane is a client of a control plane's REST API: for the policies, their history, and
// their state in the fleet. The fields must not be changed after the first call. Methods may be
// called by several goroutines at once; refusals are [*wire.Error], those of a policy with every
// bad field.
type ControlPlane struct {
	// URL is http://host:port, https://host:port or unix:/path. "" is where Sidecar says.
	URL     string
	Sidecar *HTTP
	// Token is sent as a bearer token; "" sends none.
	Token string
	// TokenFunc, if set, returns the token of each request; Token is then not used.
	TokenFunc func(context.Context) (string, error)
	// User is the author of changes that are made without a token. The control plane records the
	// name as not verified.
	User string
	// Client makes the requests, for instance with its own certificate authorities. nil means a
	// client that can reach unix:/path, too.
	Client *http.Client

	mu    sync.Mutex
	found string       // URL, or what Sidecar says
	base  string       // of the paths
	http  *http.Client // Client, or one of its own; nil until the first call
}

// maxAnswerBytes bounds an answer of a control plane. It is enough for tens of thousands of
// policies.
const maxAnswerBytes = 256 << 20

// A Condition is a precondition of a change of a policy. If it does not hold, the control plane
// refuses the change with the code precondition_failed. The zero value makes the change in any
// case.
type Condition struct {
	// Version is the version that the policy must still have; 0 allows any.
	Version int64
	// Absent requires that there is no policy of that name.
	Absent bool
}

// Policies returns all policies, by name.
func (c *ControlPlane) Policies(ctx context.Context) (PolicyList, error) {
	return fetch[PolicyList](ctx, c, "/v1/policies")
}

// Policy returns the policy of that name, which is a topic, or a prefix and '*'. The error has the
// code not_found if no policy has exactly this name.
func (c *ControlPlane) Policy(ctx context.Context, name string) (Policy, error) {
	return fetch[Policy](ctx, c, policyPath(name))
}

// PutPolicy makes document, a JSON object of the fields to set, the policy of that name, and
// returns it with its version. Unset fields are inherited, including those that the policy had set
// before.
func (c *ControlPlane) PutPolicy(ctx context.Context, name string, document json.RawMessage, when Condition) (Policy, error) {
	return change[Policy](ctx, c, http.MethodPut, policyPath(name), document, when)
}

// PlanPutPolicy returns what PutPolicy would change, and changes nothing.
func (c *ControlPlane) PlanPutPolicy(ctx context.Context, name string, document json.RawMessage, when Condition) (ApplyResult, error) {
	return change[ApplyResult](ctx, c, http.MethodPut, policyPath(name)+"?dry_run=1", document, when)
}

// PlanDeletePolicy returns what DeletePolicy would change, and changes nothing.
func (c *ControlPlane) PlanDeletePolicy(ctx context.Context, name string, when Condition) (ApplyResult, error) {
	return change[ApplyResult](ctx, c, http.MethodDelete, policyPath(name)+"?dry_run=1", nil, when)
}

// DeletePolicy deletes the policy. Its history stays.
func (c *ControlPlane) DeletePolicy(ctx context.Context, name string, when Condition) error {
	return c.call(ctx, http.MethodDelete, policyPath(name), nil, when, nil)
}

// GroupLimits is what a policy says of one consumer group; what is nil is inherited.
type GroupLimits struct {
	Paused      *bool    `json:"paused,omitempty"`
	Rate        *float64 `json:"rate,omitempty"`
	MaxInflight *int     `json:"max_inflight,omitempty"`
	// Reason is kept in the history and the audit log; "" gives none.
	Reason string `json:"reason,omitempty"`
}

// PutGroup replaces what a policy says of one consumer group, and nothing else of it. A policy that does not exist is made.
func (c *ControlPlane) PutGroup(ctx context.Context, policy, group string, limits GroupLimits, when Condition) (Policy, error) {
	body, err := json.Marshal(limits)
	if err != nil {
		return Policy{}, err
	}
	return change[Policy](ctx, c, http.MethodPut, policyPath(policy)+"/groups/"+pathPart(group), body, when)
}

// PolicyHistory returns every version of a policy, also of one that was deleted, newest first.
func (c *ControlPlane) PolicyHistory(ctx context.Context, name string) ([]PolicyVersion, error) {
	body, err := fetch[struct{ Versions []PolicyVersion }](ctx, c, policyPath(name)+"/history")
	return body.Versions, err
}

// RollbackPolicy makes a new version with the content of an old one.
func (c *ControlPlane) RollbackPolicy(ctx context.Context, name string, version int64) (Policy, error) {
	body := fmt.Appendf(nil, `{"version":%d}`, version)
	return change[Policy](ctx, c, http.MethodPost, policyPath(name)+"/rollback", body, Condition{})
}

// ApplyPolicies makes the changes of the request, all or none.
func (c *ControlPlane) ApplyPolicies(ctx context.Context, r ApplyRequest) (ApplyResult, error) {
	if r.Policies == nil {
		r.Policies = []json.RawMessage{}
	}
	body, err := json.Marshal(r)
	if err != nil {
		return ApplyResult{}, fmt.Errorf("policies to apply: %w", err)
	}
	return change[ApplyResult](ctx, c, http.MethodPost, "/v1/apply", body, Condition{})
}

// NewSeries makes all sidecars accept the control plane's policies at any revision. Without it they
// refuse lower revisions, such as those of a store that was restored from a backup.
func (c *ControlPlane) NewSeries(ctx context.Context) (Series, error) {
	return change[Series](ctx, c, http.MethodPost, "/v1/series", nil, Condition{})
}

// Audit returns changes of policies, newest first: at most limit of them (0: the control plane's
// default), with revisions below before (0: from the newest).
func (c *ControlPlane) Audit(ctx context.Context, limit int, before int64) (AuditPage, error) {
	return fetch[AuditPage](ctx, c, "/v1/audit"+query("limit", number(max(limit, 0)), "before", number(max(before, 0))))
}

// Sidecars returns the state of each sidecar, as far as the control plane knows it.
func (c *ControlPlane) Sidecars(ctx context.Context) ([]Sidecar, error) {
	return c.sidecars(ctx, "")
}

// SidecarsUsing returns the sidecars that have a policy, or that use the topic of its name if there
// is no policy. Each has only its version of this policy.
func (c *ControlPlane) SidecarsUsing(ctx context.Context, policy string) ([]Sidecar, error) {
	return c.sidecars(ctx, policy)
}

func (c *ControlPlane) sidecars(ctx context.Context, policy string) (all []Sidecar, err error) {
	for next := ""; ; {
		page, err := fetch[struct {
			Sidecars []Sidecar
			Next     string
		}](ctx, c, "/v1/sidecars"+query("policy", policy, "limit", largestPage, "cursor", next))
		if all = append(all, page.Sidecars...); err != nil || page.Next == "" {
			return all, err
		}
		next = page.Next
	}
}

// largestPage is the most that a list of the control plane has on a page.
const largestPage = "1000"

// ForgetSidecar makes replays of the fleet leave out a sidecar that is gone for good, and the
// events that only this sidecar had. The error has the code not_found if no such sidecar is
// missing.
func (c *ControlPlane) ForgetSidecar(ctx context.Context, nodeID string) error {
	return c.call(ctx, http.MethodDelete, "/v1/sidecars/"+pathPart(nodeID), nil, Condition{}, nil)
}

// FleetTopics returns the topics of the fleet, with the use of each, and with the last 60 seconds of
// each if history is set.
func (c *ControlPlane) FleetTopics(ctx context.Context, history bool) (all []FleetTopic, err error) {
	for next := ""; ; {
		page, err := fetch[struct {
			Topics []FleetTopic
			Next   string
		}](ctx, c, "/v1/topics"+query("history", onlyIf(history, "1"), "limit", largestPage, "cursor", next))
		if all = append(all, page.Topics...); err != nil || page.Next == "" {
			return all, err
		}
		next = page.Next
	}
}

// WhoAmI returns the caller's identity, as the control plane sees it.
func (c *ControlPlane) WhoAmI(ctx context.Context) (Identity, error) {
	return fetch[Identity](ctx, c, "/v1/whoami")
}

// CloseIdle closes the connections that no call uses.
func (c *ControlPlane) CloseIdle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.http != nil {
		c.http.CloseIdleConnections()
	}
}

func policyPath(name string) string { return "/v1/policies/" + pathPart(name) }

func fetch[T any](ctx context.Context, c *ControlPlane, path string) (T, error) {
	return change[T](ctx, c, http.MethodGet, path, nil, Condition{})
}

// change makes a request and decodes its answer.
func change[T any](ctx context.Context, c *ControlPlane, method, path string, body []byte, when Condition) (answer T, err error) {
	err = c.call(ctx, method, path, body, when, &answer)
	return answer, err
}

// call makes a request and decodes its answer into the value that into points to; nil expects no
// answer.
func (c *ControlPlane) call(ctx context.Context, method, path string, body []byte, when Condition, into any) error {
	client, err := c.client(ctx)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	authorized, err := authorize(req, c.Token, c.TokenFunc)
	if err != nil {
		return err
	}
	if !authorized && c.User != "" {
		req.Header.Set("Sluice-User", c.User)
	}
	if method != http.MethodGet {
		req.Header.Set("Content-Type", "application/json")
	}
	if when.Absent {
		req.Header.Set("If-None-Match", "*")
	}
	if when.Version != 0 {
		req.Header.Set("If-Match", fmt.Sprintf(`"%d"`, when.Version))
	}
	resp, err := send(client, c.found, req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes))
	if err != nil {
		return fmt.Errorf("asking %s: %w", c.found, err)
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("the answer of %s to %s: %w", c.found, path, err)
	}
	return handOver(ctx, answer)
}

// client is what makes the requests, to an address that stays the same after the first of them.
func (c *ControlPlane) client(ctx context.Context) (*http.Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.http != nil {
		return c.http, nil
	}
	address := c.URL
	if address == "" && c.Sidecar != nil {
		found, err := c.Sidecar.Listeners(ctx)
		if err != nil {
			return nil, fmt.Errorf("finding the control plane: %w", err)
		}
		if address = found.ControlPlane; address == "" {
			return nil, fmt.Errorf("%s does not say where its control plane's REST API is: give its address", c.Sidecar.AppURL)
		}
	}
	at, err := endpoint.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("the control plane's address: %w", err)
	}
	c.found, c.base, c.http = address, at.Base, c.Client
	if c.http == nil {
		c.http = &http.Client{Transport: at.Transport()}
	}
	return c.http, nil
}
