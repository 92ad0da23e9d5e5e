package rest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/controlplane/internal/catalog"
	"github.com/sluice-bus/sluice/controlplane/internal/store/boltstore"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/require"
)

const (
	shopV1     = `{"type":"object","properties":{"id":{"type":"string"}},"additionalProperties":false}`
	shopV2     = `{"type":"object","properties":{"id":{"type":"string"},"n":{"type":"integer"}},"additionalProperties":false}`
	shopStrict = `{"type":"object","properties":{"id":{"type":"string"}},"required":["id"],"additionalProperties":false}`
)

func shop(schema string) string { return `{"schema":{"json_schema":` + schema + `}}` }

func TestSchemaVersions(t *testing.T) {
	dir := t.TempDir()
	s, err := boltstore.Open(dir)
	require.NoError(t, err)
	a := newAPI(t, func(c *Config) { c.Catalog = catalogOn(t, s) })
	refused(t, a.send("GET", "/v1/policies/shop/schemas", ""), wire.NotFound)
	a.send("PUT", "/v1/policies/shop", `{"partitions":2}`)
	want(t, a.send("GET", "/v1/policies/shop/schemas", ""), 200, `{"versions":[]}`)
	for _, body := range []string{
		shop(shopV1),
		shop(strings.Replace(shopV1, `{"type":"object",`, `{ "type": "object",`, 1)),
		// the same
		`{"partitions":4,"schema":{"json_schema":{"additionalProperties":false,"properties":{"id":{"type":"string"}},"type":"object"}}}`,
		// in another order
		shop(shopV2),
		`{"partitions":3}`, // without one
		shop(shopV2),       // again, and the same as before
	} {
		if w := a.send("PUT", "/v1/policies/shop", body); w.Code != 200 {
			t.Fatalf("%s: %d %s", body, w.Code, w.Body)
		}
	}
	all := `{"versions":[{"version":2,"at":"T","by":"anonymous","json_schema":` + shopV2 +
		`},{"version":1,"at":"T","by":"anonymous","json_schema":` + shopV1 + `}]}`
	want(t, a.send("GET", "/v1/policies/shop/schemas", ""), 200, all)

	// A deletion does not forget them, and neither does a restart.
	a.send("DELETE", "/v1/policies/shop", "")
	require.NoError(t, s.Close())
	if s, err = boltstore.Open(dir); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c := catalogOn(t, s)
	a = newAPI(t, func(cfg *Config) { cfg.Catalog = c })
	want(t, a.send("GET", "/v1/policies/shop/schemas", ""), 200, all)
	refused(t, a.send("PUT", "/v1/policies/shop", shop(shopStrict)), wire.InvalidPolicy)
	if w := a.send("PUT", "/v1/policies/shop", `{"schema":{"compatibility":"none","json_schema":`+shopStrict+`}}`); w.Code != 201 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	if e, _ := c.Get("shop"); e.Policy.SchemaVersion() != 3 {
		t.Errorf("version %d", e.Policy.SchemaVersion())
	}
	// A schema that comes back gets a number of its own: events written since then have the other
	// schema.
	w := a.send("POST", "/v1/policies/shop/rollback", `{"version":2}`)
	if e, _ := c.Get("shop"); w.Code != 200 || e.Policy.SchemaVersion() != 4 {
		t.Errorf("%d %s, version %d", w.Code, w.Body, e.Policy.SchemaVersion())
	}
}

// Every way to change a policy holds its schema to those before it, and says why it is refused, for
// the field.
func TestIncompatibleSchemas(t *testing.T) {
	a := newAPI(t)
	a.send("PUT", "/v1/policies/shop", shop(shopV1))
	before := a.send("GET", "/v1/policies", "").Body.String()
	why := `the new schema requires the property \"id\", and version 1 does not`
	for request, field := range map[string]string{
		"PUT /v1/policies/shop " + shop(shopStrict):                                                     "schema.json_schema",
		"PUT /v1/policies/shop?dry_run=1 " + shop(shopStrict):                                           "schema.json_schema",
		`POST /v1/apply {"policies":[{"name":"a"},{"name":"shop",` + shop(shopStrict)[1:] + `]}`:        "policies[1].schema.json_schema",
		`POST /v1/apply {"dry_run":true,"policies":[{"name":"shop",` + shop(shopStrict)[1:] + `]}`:      "policies[0].schema.json_schema",
		`PUT /v1/policies/shop {"schema":{"compatibility":"full","json_schema":` + shopStrict + `}}`:    "schema.json_schema",
		`PUT /v1/policies/shop {"schema":{"compatibility":"forward","json_schema":` + shopV2 + `}}`:     "schema.json_schema",
		`PUT /v1/policies/shop {"schema":{"compatibility":"full_transitive","json_schema":{"not":{}}}}`: "schema.json_schema",
	} {
		parts := strings.SplitN(request, " ", 3)
		w := a.send(parts[0], parts[1], parts[2])
		if fields := refused(t, w, wire.InvalidPolicy); !slices.Contains(fields, field) {
			t.Errorf("%s: %s", request, w.Body)
		}
		if strings.Contains(request, "required") && !strings.Contains(w.Body.String(), why) {
			t.Errorf("%s: no reason in %s", request, w.Body)
		}
	}
	if after := a.send("GET", "/v1/policies", "").Body.String(); after != before {
		t.Errorf("what was refused has changed something: %s", after)
	}
	// The compatibility of "*" is inherited.
	a.send("PUT", "/v1/policies/*", `{"schema":{"compatibility":"none"}}`)
	if w := a.send("PUT", "/v1/policies/shop", shop(shopStrict)); w.Code != 200 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestTransitiveCompatibility(t *testing.T) {
	a := newAPI(t)
	for i, schema := range []string{`{"enum":["a","b"]}`, `{"enum":["a"]}`, `{"enum":["a","c"]}`} {
		body := `{"schema":{"compatibility":"` + []string{"none", "none", "backward_transitive"}[i] + `","json_schema":` + schema + `}}`
		if w := a.send("PUT", "/v1/policies/t", body); (w.Code >= 300) != (i == 2) {
			t.Fatalf("%s: %d %s", body, w.Code, w.Body)
		} else if i == 2 && !strings.Contains(w.Body.String(), `the new schema refuses \"b\", which version 1 allows`) {
			t.Errorf("%s", w.Body)
		}
	}
	if w := a.send("PUT", "/v1/policies/t", shop(`{"enum":["a","c"]}`)); w.Code != 200 {
		t.Errorf("backward is about the latest version alone: %d %s", w.Code, w.Body)
	}
}

func TestCheckSchema(t *testing.T) {
	a := newAPI(t, func(c *Config) { c.Access = tokens{} })
	call := func(body string) string {
		return strings.TrimSpace(a.send("POST", "/v1/policies/shop/schemas/check", body, "Authorization", "Bearer viewer").Body.String())
	}
	if got := call(`{"json_schema":{}}`); !strings.Contains(got, "not_found") {
		t.Errorf("without a policy: %s", got)
	}
	a.send("PUT", "/v1/policies/shop", shop(shopV1), "Authorization", "Bearer editor")
	for body, want := range map[string]string{
		`{"json_schema":` + shopV2 + `}`: `{"compatible":true,"reasons":[]}`,
		`{"json_schema":` + shopStrict + `}`: `{"compatible":false,` +
			`"reasons":["the new schema requires the property \"id\", and version 1 does not"]}`,
		`{"json_schema":` + shopStrict + `,"compatibility":"none"}`: `{"compatible":true,"reasons":[]}`,
		`{"json_schema":` + shopV2 + `,"compatibility":"full"}`: `{"compatible":false,"reasons":["at \"/properties/n\",` +
			` version 1 allows no value here, and the new schema does"]}`,
		fmt.Sprintf(`{"json_schema":%q}`, shopV2): `{"compatible":true,"reasons":[]}`,
	} {
		if got := call(body); got != want {
			t.Errorf("%s\n%s\nwant\n%s", body, got, want)
		}
	}
	for body, want := range map[string]string{
		`{}`:                           "json_schema",
		`{"json_schema":null}`:         "json_schema",
		`{"json_schema":{"type":"x"}}`: "schema.json_schema",
		`{"json_schema":7}`:            "schema.json_schema",
		`{"json_schema":{},"a":1}`:     `member \"a\" is not known`,
		`{"json_schema":{},"compatibility":"sideways"}`: "schema.compatibility",
	} {
		if got := call(body); !strings.Contains(got, want) || strings.Contains(got, "compatible\":") {
			t.Errorf("%s: %s", body, got)
		}
	}
	if w := a.send("GET", "/v1/policies/shop/schemas", "", "Authorization", "Bearer viewer"); w.Code != 200 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if versions, err := a.cfg.Catalog.(*catalog.Catalog).Schemas(t.Context(), "shop"); err != nil || len(versions) != 1 {
		t.Errorf("a check has changed something: %v %v", versions, err)
	}
}
