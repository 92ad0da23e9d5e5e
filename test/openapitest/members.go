package openapitest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var knownMembers = regexp.MustCompile(`(?:known are|allowed here:) ([\w, ]+)`)

// CheckMembers fails the test where the members of a body that are described are not those that its route knows: it sends one that
// nobody knows, at each level, and the refusal lists the others. Beside it there are those of needed that the body or the query has,
// which the route looks for before. It returns how many objects it asked about.
func (d *Description) CheckMembers(t *testing.T, h http.Handler, needed map[string]any) (objects int) {
	for _, op := range d.Operations {
		if op.RequestBody == nil {
			continue
		}
		for kind, body := range op.RequestBody.Content {
			ask := func(text any) string {
				body, err := json.Marshal(text)
				if err != nil {
					t.Fatal(err)
				}
				target := "http://127.0.0.1" + strings.NewReplacer("{", "", "}", "").Replace(op.Path) + "?"
				for name, value := range needed {
					if op.parameter("query", name) != nil {
						target += fmt.Sprint(name, "=", value)
					}
				}
				req, w := httptest.NewRequest(op.Method, target, bytes.NewReader(body)), httptest.NewRecorder()
				req.Header.Set("Content-Type", kind)
				h.ServeHTTP(w, req)
				return w.Body.String()
			}
			d.objects(body.Schema, needed, func(members []string, wrap func(map[string]any) any) {
				answer := ask(wrap(map[string]any{"a-member-that-nobody-knows-of": 1}))
				listed := knownMembers.FindStringSubmatch(answer)
				if listed == nil {
					t.Errorf("%s %s: no list of %s in %s", op.Method, op.Path, members, answer)
					return
				}
				known := strings.Split(listed[1], ", ")
				for _, name := range known {
					if !slices.Contains(members, name) {
						t.Errorf("%s %s: %s is known, and described are %s", op.Method, op.Path, name, members)
					}
				}
				for _, name := range members { // those that answers have are taken, too
					if slices.Contains(known, name) {
						continue
					}
					if answer := ask(wrap(map[string]any{name: nil})); knownMembers.MatchString(answer) {
						t.Errorf("%s %s: %s is described, and refused: %s", op.Method, op.Path, name, answer)
					}
				}
				objects++
			})
		}
	}
	return objects
}

// objects calls visit with the members of a schema's object, and of the objects in it; wrap makes the whole body of one.
func (d *Description) objects(of, needed map[string]any, visit func(members []string, wrap func(map[string]any) any)) {
	if ref, ok := of["$ref"].(string); ok {
		of = d.shared[ref[strings.LastIndexByte(ref, '/')+1:]].(map[string]any)
	}
	if items, ok := of["items"].(map[string]any); ok {
		d.objects(items, needed, func(members []string, wrap func(map[string]any) any) {
			visit(members, func(inner map[string]any) any { return []any{wrap(inner)} })
		})
	}
	properties, _ := of["properties"].(map[string]any)
	if len(properties) == 0 {
		return
	}
	complete := func(object map[string]any) map[string]any {
		for name, value := range needed {
			if properties[name] != nil {
				object[name] = value
			}
		}
		return object
	}
	visit(slices.Sorted(maps.Keys(properties)), func(inner map[string]any) any { return complete(inner) })
	for name, of := range properties {
		d.objects(of.(map[string]any), needed, func(members []string, wrap func(map[string]any) any) {
			visit(members, func(inner map[string]any) any { return complete(map[string]any{name: wrap(inner)}) })
		})
	}
}
