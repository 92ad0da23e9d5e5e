package catalog

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
)

var root = Author{Name: "root", Admin: true}

// Only admins can make changes that remove events: by a field, by a glob that others inherit from,
// by a new policy, or by an old version.
func TestOnlyAdminsShortenRetention(t *testing.T) {
	for _, tc := range []struct {
		what, before, put string
		field             string // that the refusal names; "": it is allowed
	}{
		{"a ttl is lowered", `{"name":"a","retention":{"ttl":"2h"}}`, `{"name":"a","retention":{"ttl":"1h"}}`,
			"retention.ttl from 2h0m0s to 1h0m0s"},
		{"a ttl is set", `{"name":"a"}`, `{"name":"a","retention":{"ttl":"1h"}}`, "retention.ttl from 0s to 1h0m0s"},
		{"a ttl is raised", `{"name":"a","retention":{"ttl":"1h"}}`, `{"name":"a","retention":{"ttl":"2h"}}`, ""},
		{"a ttl is taken away", `{"name":"a","retention":{"ttl":"1h"}}`, `{"name":"a"}`, ""},
		{"bytes are lowered", `{"name":"a","retention":{"max_bytes":2}}`, `{"name":"a","retention":{"max_bytes":1}}`,
			"retention.max_bytes from 2 to 1"},
		{"bytes are set", `{"name":"a"}`, `{"name":"a","retention":{"max_bytes":1}}`, "retention.max_bytes from 0 to 1"},
		{"bytes are raised", `{"name":"a","retention":{"max_bytes":1}}`, `{"name":"a","retention":{"max_bytes":0}}`, ""},
		{"compaction begins", `{"name":"a"}`, `{"name":"a","retention":{"compact":true}}`, "retention.compact from false to true"},
		{"compaction ends", `{"name":"a","retention":{"compact":true}}`, `{"name":"a"}`, ""},
		{"one is raised, another lowered", `{"name":"a","retention":{"ttl":"1h"}}`,
			`{"name":"a","retention":{"ttl":"2h","max_bytes":1}}`, "retention.max_bytes"},
		{"a policy is new", `{"name":"b"}`, `{"name":"a","retention":{"ttl":"1h"}}`, "retention.ttl"},
		{"a glob is new", `{"name":"b"}`, `{"name":"a*","retention":{"ttl":"1h"}}`, "retention.ttl"},
		{"others inherit it", `{"name":"ab","publish":{"rate":1}}`, `{"name":"a*","retention":{"compact":true}}`, "retention.compact"},
		{"it falls through", `{"name":"*","retention":{"ttl":"800h"}}`, `{"name":"a","publish":{"rate":1}}`, ""},
		{"dead letters are kept shorter", `{"name":"*"}`, `{"name":"a*","retention":{"dead_letters":"1h"}}`,
			"topics of policy \"a*\" would keep less: retention.dead_letters from 720h0m0s to 1h0m0s"},
		{"dead letters are kept longer", `{"name":"a"}`, `{"name":"a","retention":{"dead_letters":"0s"}}`, ""},
		{"a policy of a dead letter topic is new", `{"name":"*","retention":{"ttl":"1h"}}`, `{"name":"a.dlq"}`, ""},
		{"something else is changed", `{"name":"a","retention":{"ttl":"1h"}}`, `{"name":"a","retention":{"ttl":"1h"},"paused":true}`, ""},
	} {
		for way, change := range map[string]func(*Catalog, Author) error{
			"put": func(c *Catalog, by Author) error {
				_, err := c.Put(t.Context(), by, pol(t, tc.put), nil, false)
				return err
			},
			"apply": func(c *Catalog, by Author) error {
				_, err := c.Apply(t.Context(), by, pols(t, `{"name":"z"}`, tc.put), false, false)
				return err
			},
			"rollback": func(c *Catalog, by Author) error {
				p := pol(t, tc.put)
				old := c.State().Find(p.Name)
				if _, err := c.Put(t.Context(), root, p, nil, false); err != nil {
					return err
				}
				version := int64(1)
				if old == nil {
					if _, err := c.Delete(t.Context(), root, p.Name, nil, false); err != nil {
						return err
					}
				} else {
					version = old.Version + 1
					if _, err := c.Put(t.Context(), root, old.Policy, nil, false); err != nil {
						return err
					}
				}
				_, err := c.Rollback(t.Context(), by, p.Name, version, nil)
				return err
			},
		} {
			f := newFake()
			c := catalogOn(t, f)
			if _, err := c.Put(t.Context(), root, pol(t, tc.before), nil, false); err != nil {
				t.Fatal(err)
			}
			err := change(c, Author{Name: "eve"})
			last := f.all()[len(f.all())-1]
			if tc.field == "" {
				if err != nil || last.By != "eve" {
					t.Errorf("%s, by %s: %v", tc.what, way, err)
				}
				continue
			}
			if code(err) != wire.Forbidden || !strings.Contains(err.Error(), tc.field) || last.By == "eve" {
				t.Errorf("%s, by %s: %v, want a refusal that names %s", tc.what, way, err, tc.field)
			}
			if err := change(c, root); err != nil {
				t.Errorf("%s, by %s of an admin: %v", tc.what, way, err)
			}
		}
	}
}

// TestShorteningIsFound compares what is refused with what topics would keep, for a topic, and its
// dead letter topic, of each policy that may be the one that counts.
func TestShorteningIsFound(t *testing.T) {
	topics := []string{"a", "ab", "abc", "b", "ax", "abx", "z"}
	for _, topic := range topics {
		topics = append(topics, topic+".dlq")
	}
	settings := []string{`{}`, `{"ttl":"1h"}`, `{"ttl":"1000h"}`, `{"ttl":"0s"}`, `{"compact":true}`, `{"compact":false}`,
		`{"max_bytes":5}`, `{"max_bytes":0}`, `{"dead_letters":"1h"}`, `{"dead_letters":"0s"}`}
	rapid.Check(t, func(t *rapid.T) {
		draw := func(label string) (list []policy.Policy) {
			for _, name := range rapid.SliceOfDistinct(rapid.SampledFrom(modelNames), rapid.ID).Draw(t, label) {
				list = append(list, pol(t, fmt.Sprintf(`{"name":%q,"retention":%s}`, name, rapid.SampledFrom(settings).Draw(t, "retention"))))
			}
			return list
		}
		c := catalogOn(t, newFake())
		if _, err := c.Apply(t.Context(), root, draw("before"), false, false); err != nil {
			t.Fatal(err)
		}
		next := draw("change")
		before := c.State().Snapshot
		_, err := c.Apply(t.Context(), Author{Name: "eve"}, next, false, false)
		if _, again := c.Apply(t.Context(), root, next, false, false); again != nil {
			t.Fatal(again)
		}
		less := ""
		for _, topic := range topics {
			was, is := before.Topic(topic).Retention, c.State().Snapshot.Topic(topic).Retention
			shorter := is.TTL > 0 && (was.TTL == 0 || was.TTL > is.TTL)
			smaller := is.MaxBytes > 0 && (was.MaxBytes == 0 || was.MaxBytes > is.MaxBytes)
			if shorter || smaller || is.Compact && !was.Compact {
				less = topic
			}
		}
		if (less != "") != (code(err) == wire.Forbidden) {
			t.Fatalf("topic %q keeps less, and the change ended with %v", less, err)
		}
	})
}
