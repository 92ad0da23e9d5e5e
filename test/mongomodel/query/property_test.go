package query_test

import (
	"bytes"
	"math"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/test/mongomodel/query"
	"github.com/sluice-bus/sluice/test/require"
)

// scalars are drawn from few values, so that two of them often are equal, and from all types.
var scalars = rapid.OneOf(
	rapid.Just[any](nil),
	rapid.Map(rapid.Int32Range(-2, 2), func(n int32) any { return n }),
	rapid.Map(rapid.SampledFrom([]int64{-1, 0, 1, math.MaxInt64, math.MinInt64, 1 << 53, 1<<53 + 1}), func(n int64) any { return n }),
	rapid.Map(rapid.SampledFrom([]float64{-0.5, 0, 1, 1.5, 1 << 53, 1 << 63, math.NaN(), math.Inf(1), math.Inf(-1)}),
		func(f float64) any { return f }),
	rapid.Map(rapid.SampledFrom([]string{"0", "1.00", "0.5", "NaN", "Infinity", "9007199254740993", "1E+6000", "-1E-6000"}),
		func(s string) any {
			d, err := bson.ParseDecimal128(s)
			if err != nil {
				panic(err)
			}
			return d
		}),
	rapid.Map(rapid.SampledFrom([]string{"", "a", "b", "ab"}), func(s string) any { return s }),
	rapid.Map(rapid.Bool(), func(b bool) any { return b }),
	rapid.Map(rapid.Int64Range(-1, 1), func(n int64) any { return bson.DateTime(n) }),
	rapid.Map(rapid.Uint32Range(0, 2), func(n uint32) any { return bson.Timestamp{T: n, I: 2 - n} }),
	rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 2), func(b []byte) any { return bson.Binary{Data: b} }),
	rapid.SampledFrom([]any{bson.MinKey{}, bson.MaxKey{}, bson.ObjectID{1}, bson.ObjectID{2}, bson.Regex{Pattern: "a"}, bson.JavaScript("x"),
		bson.CodeWithScope{Code: "x", Scope: bson.D{{Key: "a", Value: 1}}}, bson.Undefined{}, bson.Symbol("a")}),
)

// anything is a value of any type, documents and arrays of some depth too.
func anything(depth int) *rapid.Generator[any] {
	if depth == 0 {
		return scalars
	}
	return rapid.OneOf(scalars,
		rapid.Map(rapid.SliceOfN(anything(depth-1), 0, 3), func(all []any) any { return bson.A(all) }),
		rapid.Map(documents(depth-1), func(d bson.D) any { return d }))
}

func documents(depth int) *rapid.Generator[bson.D] {
	return rapid.Custom(func(t *rapid.T) bson.D {
		d := bson.D{}
		for _, key := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "0"}), 0, 3, rapid.ID[string]).Draw(t, "keys") {
			d = append(d, bson.E{Key: key, Value: anything(depth).Draw(t, key)})
		}
		return d
	})
}

func marshal(t *rapid.T, d any) bson.Raw {
	raw, err := bson.Marshal(d)
	require.NoError(t, err)
	return raw
}

func rawValue(t *rapid.T, v any) bson.RawValue {
	return query.Lookup(marshal(t, bson.D{{Key: "v", Value: v}}), "v")
}

func sign(n int) int { return min(1, max(-1, n)) }

func TestCompareIsATotalOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) bson.RawValue {
			if rapid.IntRange(0, 20).Draw(t, "missing") == 0 {
				return bson.RawValue{}
			}
			return rawValue(t, anything(2).Draw(t, name))
		}
		a, b, c := draw("a"), draw("b"), draw("c")
		if query.Compare(a, a) != 0 {
			t.Fatalf("%s is not equal to itself", a)
		}
		ab, bc, ac := sign(query.Compare(a, b)), sign(query.Compare(b, c)), sign(query.Compare(a, c))
		if ab != -sign(query.Compare(b, a)) {
			t.Fatalf("%s and %s: %d from both sides", a, b, ab)
		}
		if ab <= 0 && bc <= 0 && ac > 0 || ab == 0 && bc != ac {
			t.Fatalf("%s %s %s: %d %d %d", a, b, c, ab, bc, ac)
		}
	})
}

// known leaves out the operands that filters refuse.
func known(values *rapid.Generator[any]) *rapid.Generator[any] {
	return values.Filter(func(v any) bool { return v != any(bson.Undefined{}) && v != any(bson.Regex{Pattern: "a"}) })
}

// conditions are filters on the fields a and b.
func conditions(depth int) *rapid.Generator[bson.D] {
	return rapid.Custom(func(t *rapid.T) bson.D {
		d := bson.D{}
		for range rapid.IntRange(0, 3).Draw(t, "conditions") {
			if depth > 0 && rapid.IntRange(0, 3).Draw(t, "logical") == 0 {
				op := rapid.SampledFrom([]string{"$and", "$or", "$nor"}).Draw(t, "op")
				branches := rapid.SliceOfN(conditions(depth-1), 1, 3).Draw(t, op)
				d = append(d, bson.E{Key: op, Value: branches})
				continue
			}
			op := rapid.SampledFrom([]string{"$eq", "$ne", "$gt", "$gte", "$lt", "$lte", "$in", "$nin", "$exists", "$not", "$type"}).Draw(t, "op")
			v := known(anything(1)).Draw(t, "operand")
			switch op {
			case "$in", "$nin":
				v = bson.A{v, known(scalars).Draw(t, "second")}
			case "$exists":
				v = rapid.Bool().Draw(t, "exists")
			case "$not":
				v = bson.D{{Key: "$gt", Value: v}}
			case "$type":
				v = rapid.SampledFrom([]string{"number", "string", "null", "array"}).Draw(t, "type")
			}
			d = append(d, bson.E{Key: rapid.SampledFrom([]string{"a", "b", "a.b"}).Draw(t, "path"), Value: bson.D{{Key: op, Value: v}}})
		}
		return d
	})
}

func filter(t *rapid.T, d bson.D) *query.Filter {
	f, err := query.ParseFilter(marshal(t, d))
	if err != nil {
		t.Fatalf("%s: %v", show(d), err)
	}
	return f
}

func TestBoundsHoldWhatMatches(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		said := conditions(2).Draw(t, "filter")
		f := filter(t, said)
		doc := marshal(t, documents(1).Draw(t, "doc"))
		if !f.Match(doc) {
			return
		}
		for _, path := range []string{"a", "b", "a.b"} {
			pattern, err := query.ParseKeyPattern(marshal(t, bson.D{{Key: path, Value: 1}}))
			require.NoError(t, err)
			keys, multikey, err := pattern.Keys(doc)
			require.NoError(t, err)
			if !multikey && !f.Bounds(path).Contains(keys[0][0]) {
				t.Fatalf("%s selects %s, whose %s is out of the bounds %v", show(said), show(doc), path, f.Bounds(path))
			}
		}
	})
}

func TestImpliedFiltersSelectAsMuch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := conditions(1).Draw(t, "filter"), conditions(0).Draw(t, "implied")
		doc := marshal(t, documents(1).Draw(t, "doc"))
		f, p := filter(t, append(a, b[:rapid.IntRange(0, len(b)).Draw(t, "shared")]...)), filter(t, b)
		keys, _ := query.ParseKeyPattern(marshal(t, bson.D{{Key: "a", Value: 1}}))
		if _, multikey, _ := keys.Keys(doc); !multikey && f.Implies(p) && f.Match(doc) && !p.Match(doc) {
			t.Fatalf("%s selects %s, and %s does not", show(a), show(doc), show(b))
		}
	})
}

func apply(t *rapid.T, doc bson.Raw, update bson.D) bson.Raw {
	u, err := query.ParseUpdate(bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: marshal(t, update)})
	require.NoError(t, err)
	after, err := u.Apply(doc, false)
	if err != nil {
		t.Skip(err) // a path through what is no document
	}
	return after
}

func TestAnUpdateIsUndoneByItsInverse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before := marshal(t, append(bson.D{{Key: "_id", Value: 1}}, documents(2).Draw(t, "doc")...))
		path := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "path")
		v := rapid.OneOf(anything(1)).Draw(t, "value")
		after := apply(t, before, bson.D{{Key: "$set", Value: bson.D{{Key: path, Value: v}}}})
		if got := query.Lookup(after, path); query.Compare(got, rawValue(t, v)) != 0 {
			t.Fatalf("%s is %s after it was set to %v", path, got, v)
		}
		inverse := bson.D{{Key: "$unset", Value: bson.D{{Key: path, Value: ""}}}}
		if old := query.Lookup(before, path); old.Type != 0 {
			inverse = bson.D{{Key: "$set", Value: bson.D{{Key: path, Value: old}}}}
		}
		if got := apply(t, after, inverse); !bytes.Equal(got, before) {
			t.Fatalf("%s became %s", show(before), show(got))
		}
	})
}

func TestMaxAndMinEndAtAnExtreme(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		doc := marshal(t, bson.D{{Key: "_id", Value: 1}})
		all := rapid.SliceOfN(anything(1), 1, 5).Draw(t, "values")
		for _, v := range all {
			doc = apply(t, doc, bson.D{{Key: "$max", Value: bson.D{{Key: "most", Value: v}}},
				{Key: "$min", Value: bson.D{{Key: "least", Value: v}}}})
		}
		for _, v := range all {
			x := rawValue(t, v)
			if query.Compare(query.Lookup(doc, "most"), x) < 0 || query.Compare(query.Lookup(doc, "least"), x) > 0 {
				t.Fatalf("%s is beyond %s", x, show(doc))
			}
		}
	})
}

func seeds(f *testing.F, texts ...string) {
	for _, text := range texts {
		f.Add([]byte(doc(f, text)))
	}
	f.Add([]byte{5, 0, 0, 0, 0})
	f.Add([]byte{})
}

func FuzzParseFilter(f *testing.F) {
	seeds(f, `{"a":{"$gt":1,"$in":[1,"x"]},"$or":[{"a.0.b":null},{"b":{"$elemMatch":{"c":1}}}]}`,
		`{"$expr":{"$gt":["$a.b",{"$add":[1,"$$NOW"]}]}}`, `{"a":{"$type":["null","number"]},"b":{"$not":{"$gt":1}}}`)
	f.Fuzz(func(t *testing.T, data []byte) {
		filter, err := query.ParseFilter(data)
		if err != nil {
			code(t, err)
			return
		}
		for _, text := range []string{`{}`, `{"a":[1,{"b":2}],"b":[{"c":1}]}`} {
			filter.Match(doc(t, text))
		}
		filter.Bounds("a")
		if _, err := filter.UpsertSeed(); err != nil {
			code(t, err)
		}
	})
}

func FuzzParseUpdate(f *testing.F) {
	seeds(f, `{"$set":{"a.1":1},"$inc":{"b":1},"$push":{"c":{"$each":[1],"$slice":-1}}}`, `{"a":1}`,
		`{"$pull":{"a":{"b":1}},"$rename":{"b":"d"},"$max":{"n":1},"$currentDate":{"t":true},"$addToSet":{"s":1}}`)
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, kind := range []bson.Type{bson.TypeEmbeddedDocument, bson.TypeArray} {
			u, err := query.ParseUpdate(bson.RawValue{Type: kind, Value: data})
			if err != nil {
				code(t, err)
				continue
			}
			for _, text := range []string{`{"_id":1}`, `{"_id":1,"a":[1,{"b":2}],"b":3,"c":[1]}`} {
				after, err := u.Apply(doc(t, text), true)
				if err != nil {
					code(t, err)
				} else if err := after.Validate(); err != nil {
					t.Fatalf("%x made %x: %v", data, []byte(after), err)
				}
			}
		}
	})
}
