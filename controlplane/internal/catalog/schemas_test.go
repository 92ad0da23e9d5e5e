package catalog

import (
	"fmt"
	"testing"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/require"
)

// versionsOf are the versions of a policy's schema, newest first, and their authors' texts.
func versionsOf(t *testing.T, c *Catalog, name string) (out string) {
	t.Helper()
	list, err := c.Schemas(t.Context(), name)
	require.NoError(t, err)
	for _, s := range list {
		out += fmt.Sprintf("%d %s\n", s.Version, s.JSONSchema)
	}
	return out
}

// inForce is the version that holds for a name.
func inForce(c *Catalog, name string) int64 { return c.State().Snapshot.Topic(name).Schema.Version }

const threeSchemas = `3 {"enum":["a","b","c"]}
2 {"enum":["a","b"]}
1 {"enum":["a"]}
`

func putThree(t *testing.T, catalogs ...*Catalog) {
	t.Helper()
	for i, schema := range []string{`{"enum":["a"]}`, `{"enum":["a","b"]}`, `{"enum":["a","b","c"]}`} {
		mustPut(t, catalogs[i%len(catalogs)], `{"name":"t*","schema":{"json_schema":`+schema+`}}`)
	}
}

// Several control planes count the schemas of their store together, and topics that inherit one
// have its number.
func TestSchemasAreCountedTogether(t *testing.T) {
	f := newFake()
	a, b := catalogOn(t, f), catalogOn(t, f)
	putThree(t, a, b)
	again := catalogOn(t, f)
	for i, c := range []*Catalog{a, b, again} {
		require.NoError(t, c.follow(t.Context()))
		if got := versionsOf(t, c, "t*"); got != threeSchemas || inForce(c, "topic") != 3 || inForce(c, "other") != 0 {
			t.Errorf("catalog %d: version %d of\n%s", i, inForce(c, "topic"), got)
		}
	}
	mustPut(t, a, `{"name":"topic","schema":{"json_schema":{"type":"string"}}}`)
	if inForce(a, "topic") != 1 || inForce(a, "topics") != 3 {
		t.Errorf("versions %d and %d", inForce(a, "topic"), inForce(a, "topics"))
	}
}

// Of a policy that changes often its versions are forgotten, and its schemas not.
func TestSchemasOutliveVersions(t *testing.T) {
	f := newFake()
	c := catalogOn(t, f)
	putThree(t, c)
	for i := range MaxVersions + 5 {
		mustPut(t, c, fmt.Sprintf(`{"name":"t*","partitions":%d,"schema":{"json_schema":{"enum":["a","b","c"]}}}`, i%2+1))
	}
	if f.commits[0].Changes[0].Forgotten || !f.commits[4].Changes[0].Forgotten {
		t.Error("the wrong changes are forgotten")
	}
	for _, c := range []*Catalog{c, catalogOn(t, f)} {
		if got := versionsOf(t, c, "t*"); got != threeSchemas {
			t.Errorf("got\n%s", got)
		}
		_, err := c.Put(t.Context(), Author{}, pol(t,
			`{"name":"t*","schema":{"compatibility":"backward_transitive","json_schema":{"enum":["b","c"]}}}`), nil, false)
		if code(err) != wire.InvalidPolicy || len(wire.AsError(err).Fields) != 3 {
			t.Errorf("%v", err)
		}
	}
}

// Versions beyond the bound of schemas, or of the history's bytes, are not compared with any more;
// without any version left, a schema is incompatible.
func TestSchemasAreBounded(t *testing.T) {
	f := newFake()
	c := catalogOn(t, f)
	for i := range MaxSchemas + 2 {
		mustPut(t, c, fmt.Sprintf(`{"name":"t","schema":{"json_schema":{"maximum":%d}}}`, i))
	}
	list, err := c.Schemas(t.Context(), "t")
	if err != nil || len(list) != MaxSchemas || list[len(list)-1].Version != 3 || list[0].Version != MaxSchemas+2 {
		t.Errorf("%d versions, %v", len(list), err)
	}
	if _, err := c.Delete(t.Context(), Author{Admin: true}, "t", nil, false); err != nil {
		t.Fatal(err)
	}
	changes := map[int64][]string{}
	for _, commit := range f.commits {
		changes[commit.Revision] = []string{"t"}
	}
	require.NoError(t, f.Forget(t.Context(), changes))
	c = catalogOn(t, f)
	if list, err := c.Schemas(t.Context(), "t"); err != nil || len(list) != 0 {
		t.Errorf("%d versions, %v", len(list), err)
	}
	_, err = c.Put(t.Context(), Author{}, pol(t, `{"name":"t","schema":{"json_schema":{}}}`), nil, false)
	if code(err) != wire.InvalidPolicy {
		t.Errorf("with nothing to compare with: %v", err)
	}
	e := mustPut(t, c, `{"name":"t","schema":{"json_schema":{},"compatibility":"none"}}`)
	if e.Policy.SchemaVersion() != MaxSchemas+3 {
		t.Errorf("version %d", e.Policy.SchemaVersion())
	}
}
