package store_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/test/mongomodel/query"
	"github.com/sluice-bus/sluice/test/mongomodel/store"
	"github.com/sluice-bus/sluice/test/require"
)

// cells are values of few kinds, so that they often are equal or next to each other.
var cells = rapid.OneOf(
	rapid.Map(rapid.Int32Range(0, 4), func(n int32) any { return n }),
	rapid.SampledFrom([]any{nil, "x", "y", 1.5, int64(2), bson.A{int32(1), int32(3)}, bson.A{}, bson.D{{Key: "c", Value: int32(1)}}, true}),
)

var fieldNames = []string{"a", "b"}

func rows(id any) *rapid.Generator[bson.D] {
	return rapid.Custom(func(t *rapid.T) bson.D {
		d := bson.D{{Key: "_id", Value: id}}
		for _, name := range fieldNames {
			if rapid.IntRange(0, 5).Draw(t, "has") > 0 {
				d = append(d, bson.E{Key: name, Value: cells.Draw(t, name)})
			}
		}
		return d
	})
}

// selections are filters on the fields that are indexed.
var selections = rapid.Custom(func(t *rapid.T) bson.D {
	d := bson.D{}
	for range 3 - rapid.IntRange(0, 3).Draw(t, "fewer") { // rapid draws small numbers more often
		name := rapid.SampledFrom(append([]string{"_id"}, fieldNames...)).Draw(t, "field")
		op := rapid.SampledFrom([]string{"$eq", "$gt", "$gte", "$lt", "$lte", "$ne", "$in", "$exists"}).Draw(t, "op")
		v := cells.Draw(t, "operand")
		switch op {
		case "$in":
			v = bson.A{v, cells.Draw(t, "second"), cells.Draw(t, "third")}
		case "$exists":
			v = rapid.Bool().Draw(t, "exists")
		}
		condition := bson.D{{Key: name, Value: bson.D{{Key: op, Value: v}}}}
		if rapid.IntRange(0, 4).Draw(t, "or") == 0 {
			condition = bson.D{{Key: "$or", Value: bson.A{condition, bson.D{{Key: "a", Value: cells.Draw(t, "alternative")}}}}}
		}
		d = append(d, condition...)
	}
	return d
})

var patterns = rapid.Custom(func(t *rapid.T) bson.D {
	d := bson.D{}
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(append([]string{"_id"}, fieldNames...)), 1, 3, rapid.ID[string]).Draw(t,
		"fields") {
		d = append(d, bson.E{Key: name, Value: rapid.SampledFrom([]int32{1, -1}).Draw(t, "direction")})
	}
	return d
})

var indexSpecs = rapid.Custom(func(t *rapid.T) bson.D {
	keys := patterns.Draw(t, "keys")
	d := bson.D{{Key: "key", Value: keys}, {Key: "name", Value: fmt.Sprint(keys)}}
	switch rapid.IntRange(0, 4).Draw(t, "kind") {
	case 0:
		d = append(d, bson.E{Key: "unique", Value: true})
	case 1:
		d = append(d, bson.E{Key: "sparse", Value: true})
	case 2:
		d = append(d, bson.E{Key: "partialFilterExpression", Value: bson.D{{Key: "a", Value: bson.D{{Key: "$gt", Value: int32(1)}}}}})
	}
	return d
})

func raw(t *rapid.T, d bson.D) bson.Raw {
	b, err := bson.Marshal(d)
	require.NoError(t, err)
	return b
}

func parsed(t *rapid.T, d bson.D) *query.Filter {
	f, err := query.ParseFilter(raw(t, d))
	require.NoError(t, err)
	return f
}

// known fails for errors that have no server's code: they would be defects here.
func known(t *rapid.T, err error) {
	if c := code(err); err != nil && c < 0 {
		t.Fatal(err)
	}
}

// step does one random write and returns its entries.
func step(t *rapid.T, s *store.Store) []store.Entry {
	switch rapid.SampledFrom([]string{"insert", "insert", "insert", "update", "update", "upsert", "delete", "index", "index", "unindex",
		"drop"}).Draw(t, "step") {
	case "insert":
		e, err := s.Insert(ns, raw(t, rows(rapid.Int32Range(0, 30).Draw(t, "id")).Draw(t, "doc")))
		known(t, err)
		return e
	case "update":
		u, err := query.ParseUpdate(bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: raw(t, bson.D{{Key: "$set", Value: bson.D{
			{Key: rapid.SampledFrom(fieldNames).Draw(t, "field"), Value: cells.Draw(t, "value")}}}})})
		known(t, err)
		r, err := s.Update(ns, store.UpdateRequest{Filter: parsed(t, selections.Draw(t, "filter")), Update: u,
			Multi: rapid.Bool().Draw(t, "multi")})
		known(t, err)
		return r.Entries
	case "upsert":
		u, err := query.ParseUpdate(bson.RawValue{Type: bson.TypeEmbeddedDocument,
			Value: raw(t, rows(rapid.Int32Range(0, 30).Draw(t, "id")).Draw(t, "doc"))})
		known(t, err)
		r, err := s.Update(ns, store.UpdateRequest{Filter: parsed(t, selections.Draw(t, "filter")), Update: u, Upsert: true})
		known(t, err)
		return r.Entries
	case "delete":
		r, err := s.Delete(ns, store.DeleteRequest{Filter: parsed(t, selections.Draw(t, "filter")), Multi: rapid.Bool().Draw(t, "multi")})
		known(t, err)
		return r.Entries
	case "index":
		e, _, _, err := s.CreateIndexes(ns, []bson.Raw{raw(t, indexSpecs.Draw(t, "spec"))})
		known(t, err)
		return e
	case "unindex":
		if rapid.IntRange(0, 3).Draw(t, "really") > 0 {
			return nil
		}
		star := query.Lookup(raw(t, bson.D{{Key: "v", Value: "*"}}), "v")
		e, _, err := s.DropIndexes(ns, star)
		known(t, err)
		return e
	}
	if rapid.IntRange(0, 9).Draw(t, "really") > 0 {
		return nil
	}
	change := func() ([]store.Entry, error) { return s.Drop(ns) }
	if rapid.Bool().Draw(t, "rename") {
		from, to := ns, ns+"2"
		if rapid.Bool().Draw(t, "back") {
			from, to = to, from
		}
		change = func() ([]store.Entry, error) { return s.Rename(from, to, rapid.Bool().Draw(t, "drop target")) }
	}
	e, err := change()
	known(t, err)
	return e
}

func TestAnotherStoreBecomesEqualByEntries(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, follower := store.New(), store.New()
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			for _, e := range step(t, s) {
				for range rapid.IntRange(1, 2).Draw(t, "times") {
					require.NoError(t, follower.Apply(e))
				}
			}
			if rapid.IntRange(0, 5).Draw(t, "fork") == 0 {
				before := dump(t, s)
				fork := s.Fork()
				if rapid.Bool().Draw(t, "swap") {
					s, fork = fork, s
				}
				entries := step(t, s)
				if !bytes.Equal(dump(t, fork), before) {
					t.Fatal("a fork changed with the other")
				}
				for _, e := range entries {
					require.NoError(t, follower.Apply(e))
				}
			}
		}
		if a, b := dump(t, s), dump(t, follower); !bytes.Equal(a, b) {
			t.Fatalf("the store:\n%sits follower:\n%s", a, b)
		}
	})
}

func TestAnIndexFindsWhatAScanFinds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := store.New()
		for id := range rapid.IntRange(15, 30).Draw(t, "documents") {
			if _, err := s.Insert(ns, raw(t, rows(int32(id)).Draw(t, "doc"))); err != nil {
				known(t, err)
			}
		}
		for range rapid.IntRange(1, 3).Draw(t, "indexes") {
			_, _, _, err := s.CreateIndexes(ns, []bson.Raw{raw(t, indexSpecs.Draw(t, "spec"))})
			known(t, err)
		}
		for range rapid.IntRange(0, 5).Draw(t, "steps") {
			step(t, s)
		}
		f := parsed(t, selections.Draw(t, "filter"))
		r := store.FindRequest{Filter: f}
		sorted := rapid.Bool().Draw(t, "sorted")
		if sorted {
			sort, err := query.ParseKeyPattern(raw(t, patterns.Draw(t, "sort")))
			require.NoError(t, err)
			r.Sort = sort
		}
		if specs, err := s.Indexes(ns); err == nil && rapid.Bool().Draw(t, "hinted") {
			spec := rapid.SampledFrom(specs).Draw(t, "hint")
			if query.Lookup(spec, "sparse").Type == 0 { // a hint to a sparse index finds what it has only, as on the server
				r.Hint = query.Lookup(spec, "name")
			}
		}
		everything, err := s.All(ns, store.FindRequest{Filter: query.All})
		known(t, err)
		var want []bson.Raw
		for _, d := range everything {
			if f.Match(d) {
				want = append(want, d)
			}
		}
		cur, err := s.Find(ns, r)
		if code(err) == 291 {
			t.Skip("the hinted index does not have all")
		}
		known(t, err)
		var got []bson.Raw
		for done := false; !done; {
			var docs []bson.Raw
			docs, done, err = cur.Next(s, rapid.IntRange(1, 20).Draw(t, "batch"), rapid.IntRange(1, 200).Draw(t, "bytes"))
			if code(err) == query.BadValue {
				t.Skip("a sort by parallel arrays")
			}
			known(t, err)
			got = append(got, docs...)
		}
		if sorted {
			for i := 1; i < len(got); i++ {
				a, errA := r.Sort.SortKey(got[i-1])
				b, errB := r.Sort.SortKey(got[i])
				if errA != nil || errB != nil {
					t.Skip("a sort by parallel arrays")
				}
				if r.Sort.Compare(a, b) > 0 {
					t.Fatalf("%s before %s", query.ShowDocument(got[i-1]), query.ShowDocument(got[i]))
				}
			}
		}
		if a, b := listed(got), listed(want); a != b {
			t.Fatalf("found:\n%s\nby a scan:\n%s", a, b)
		}
	})
}

func listed(docs []bson.Raw) string {
	var all []string
	for _, d := range docs {
		all = append(all, query.ShowDocument(d))
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}
