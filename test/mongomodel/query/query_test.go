package query_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-bus/sluice/test/mongomodel/query"
	"github.com/sluice-bus/sluice/test/require"
)

// doc reads MongoDB's extended JSON. Whole numbers in it have 32 bits where they fit.
func doc(t testing.TB, text string) bson.Raw {
	t.Helper()
	var d bson.D
	if err := bson.UnmarshalExtJSON([]byte(text), false, &d); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	raw, err := bson.Marshal(d)
	require.NoError(t, err)
	return raw
}

func value(t testing.TB, text string) bson.RawValue {
	t.Helper()
	return query.Lookup(doc(t, `{"v":`+text+`}`), "v")
}

// code returns the server's code of an error, 0 of none, and fails for an error that has none.
func code(t testing.TB, err error) int32 {
	t.Helper()
	if err == nil {
		return 0
	}
	var e *query.Error
	if !errors.As(err, &e) {
		t.Fatalf("an error without a code: %v", err)
	}
	return e.Code
}

func show(v any) string {
	text, err := bson.MarshalExtJSON(v, false, false)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func compact(t testing.TB, text string) string { return show(doc(t, text)) }

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		filter, doc string
		want        bool
	}{
		{`{}`, `{"a":1}`, true},
		{`{"a":1}`, `{"a":1}`, true},
		{`{"a":1}`, `{"a":1.0}`, true},
		{`{"a":1}`, `{"a":{"$numberDecimal":"1.00"}}`, true},
		{`{"a":{"$numberLong":"9007199254740993"}}`, `{"a":9007199254740992.0}`, false},
		{`{"a":1}`, `{"a":"1"}`, false},
		{`{"a":1}`, `{"a":[0,1]}`, true},
		{`{"a":[0,1]}`, `{"a":[0,1]}`, true},
		{`{"a":[0,1]}`, `{"a":[[0,1]]}`, true},
		{`{"a":[1,0]}`, `{"a":[0,1]}`, false},
		{`{"a":{"b":1,"c":2}}`, `{"a":{"c":2,"b":1}}`, false},
		{`{"a":null}`, `{}`, true},
		{`{"a":null}`, `{"a":null}`, true},
		{`{"a":null}`, `{"a":0}`, false},
		{`{"a.b":null}`, `{"a":5}`, true},
		{`{"a.b":null}`, `{"a":[]}`, false},
		{`{"a.b":1}`, `{"a":[{"b":0},{"b":1}]}`, true},
		{`{"a.1":1}`, `{"a":[0,1]}`, true},
		{`{"a.1.b":1}`, `{"a":[0,{"b":1}]}`, true},
		{`{"a":{"$ne":1}}`, `{"a":[0,1]}`, false},
		{`{"a":{"$ne":1}}`, `{}`, true},
		{`{"a":{"$gt":5}}`, `{"a":"6"}`, false},
		{`{"a":{"$gt":5,"$lt":7}}`, `{"a":[1,10]}`, true},
		{`{"a":{"$gte":null}}`, `{}`, true},
		{`{"a":{"$gt":null}}`, `{"a":null}`, false},
		{`{"a":{"$gt":{"$minKey":1}}}`, `{"a":"x"}`, true},
		{`{"a":{"$gt":{"$numberDouble":"NaN"}}}`, `{"a":1}`, false},
		{`{"a":{"$gte":{"$numberDouble":"NaN"}}}`, `{"a":{"$numberDouble":"NaN"}}`, true},
		{`{"a":{"$lt":1}}`, `{"a":{"$numberDouble":"NaN"}}`, false},
		{`{"a":{"$not":{"$gt":5}}}`, `{}`, true},
		{`{"a":{"$not":{"$gt":5}}}`, `{"a":"x"}`, true},
		{`{"a":{"$not":{"$gt":5}}}`, `{"a":6}`, false},
		{`{"a":{"$in":[1,null]}}`, `{}`, true},
		{`{"a":{"$in":[]}}`, `{}`, false},
		{`{"a":{"$in":[3,1,2]}}`, `{"a":[5,2]}`, true},
		{`{"a":{"$nin":[1]}}`, `{"a":2}`, true},
		{`{"a":{"$exists":true}}`, `{"a":null}`, true},
		{`{"a":{"$exists":false}}`, `{"a":null}`, false},
		{`{"a.b":{"$exists":false}}`, `{"a":[{"c":1}]}`, true},
		{`{"a.b":{"$exists":false}}`, `{"a":[{"c":1},{"b":1}]}`, false},
		{`{"a":{"$type":"null"}}`, `{}`, false},
		{`{"a":{"$type":"null"}}`, `{"a":null}`, true},
		{`{"a":{"$type":"number"}}`, `{"a":{"$numberLong":"1"}}`, true},
		{`{"a":{"$type":["string",8]}}`, `{"a":true}`, true},
		{`{"a":{"$type":"array"}}`, `{"a":[]}`, true},
		{`{"$or":[{"a":1},{"b":1}]}`, `{"b":1}`, true},
		{`{"$nor":[{"a":1},{"b":1}]}`, `{"b":1}`, false},
		{`{"$and":[{"a":1},{"b":1}]}`, `{"b":1}`, false},
		{`{"a":{"$ref":"c","$id":1}}`, `{"a":{"$ref":"c","$id":1}}`, true},
	} {
		f, err := query.ParseFilter(doc(t, c.filter))
		if err != nil {
			t.Errorf("%s: %v", c.filter, err)
			continue
		}
		if got := f.Match(doc(t, c.doc)); got != c.want {
			t.Errorf("%s selects %s: %v", c.filter, c.doc, got)
		}
	}
}

func TestUnknownFilters(t *testing.T) {
	for _, c := range []struct {
		filter, named string
		code          int32
	}{
		{`{"a":{"$foo":1}}`, "$foo", query.BadValue},
		{`{"$foo":1}`, "$foo", query.BadValue},
		{`{"$where":"x"}`, "$where", query.BadValue},
		{`{"a":{"$in":1}}`, "$in", query.BadValue},
		{`{"$or":[]}`, "$or", query.BadValue},
		{`{"$or":[1]}`, "$or", query.BadValue},
		{`{"a":{"$type":"foo"}}`, "foo", query.BadValue},
		{`{"a":{"$not":1}}`, "$not", query.BadValue},
		{`{"a":{"$gt":1,"b":2}}`, "b", query.BadValue},
		{`{"a":{"$elemMatch":{"b":1}}}`, "$elemMatch", query.BadValue},
		{`{"a":{"$size":1}}`, "$size", query.BadValue},
		{`{"a":{"$all":[1]}}`, "$all", query.BadValue},
		{`{"a":{"$regex":"x","$options":"i"}}`, "$regex", query.BadValue},
		{`{"a":{"$regularExpression":{"pattern":"x","options":""}}}`, "regular expression", query.BadValue},
		{`{"a":{"$in":[{"$regularExpression":{"pattern":"x","options":""}}]}}`, "regular expression", query.BadValue},
		{`{"a":{"$not":{"$regularExpression":{"pattern":"x","options":""}}}}`, "$not", query.BadValue},
		{`{"$expr":{"$gt":["$a","$b"]}}`, "$expr", query.BadValue},
		{`{"$comment":"x"}`, "$comment", query.BadValue},
	} {
		_, err := query.ParseFilter(doc(t, c.filter))
		if code(t, err) != c.code || !strings.Contains(err.Error(), c.named) {
			t.Errorf("%s: %v", c.filter, err)
		}
	}
}

func TestUpsertSeed(t *testing.T) {
	for filter, want := range map[string]string{
		`{"_id":"x","n":{"$lt":5}}`:                      `{"_id":"x"}`,
		`{"a.b":1,"$and":[{"a.c":{"$eq":2}},{"d":"e"}]}`: `{"a":{"b":1,"c":2},"d":"e"}`,
		`{"$or":[{"a":1},{"b":2}]}`:                      `{}`,
		`{"$or":[{"a":1}],"b":{"$ne":1},"c":null}`:       `{"a":1,"c":null}`,
	} {
		f, err := query.ParseFilter(doc(t, filter))
		require.NoError(t, err)
		seed, err := f.UpsertSeed()
		if err != nil || show(seed) != compact(t, want) {
			t.Errorf("%s seeds %s, %v", filter, show(seed), err)
		}
	}
}

func TestApply(t *testing.T) {
	for _, c := range []struct{ update, before, after string }{
		{`{"$set":{"b":1,"a":2}}`, `{"_id":1}`, `{"_id":1,"a":2,"b":1}`},
		{`{"$set":{"a.b.c":1}}`, `{"_id":1}`, `{"_id":1,"a":{"b":{"c":1}}}`},
		{`{"$set":{"a.2":1}}`, `{"a":[0]}`, `{"a":[0,null,1]}`},
		{`{"$set":{"a.0.b":1}}`, `{"a":[{"b":0,"c":1}]}`, `{"a":[{"b":1,"c":1}]}`},
		{`{"$set":{"a.10":1,"a.9":2}}`, `{"_id":1}`, `{"_id":1,"a":{"9":2,"10":1}}`},
		{`{"$set":{}}`, `{"a":1}`, `{"a":1}`},
		{`{"$setOnInsert":{"a":1}}`, `{"_id":1}`, `{"_id":1}`},
		{`{"$unset":{"a":"","b.c":""}}`, `{"a":1,"b":{"c":1,"d":1}}`, `{"b":{"d":1}}`},
		{`{"$unset":{"a.0":""}}`, `{"a":[1,2]}`, `{"a":[null,2]}`},
		{`{"$unset":{"a.b":""}}`, `{"a":5}`, `{"a":5}`},
		{`{"$inc":{"a":1,"b":2}}`, `{"a":2147483647}`, `{"a":{"$numberLong":"2147483648"},"b":2}`},
		{`{"$inc":{"a":0.5}}`, `{"a":1}`, `{"a":1.5}`},
		{`{"$max":{"a":5,"b":5,"c":5}}`, `{"a":4,"b":6}`, `{"a":5,"b":6,"c":5}`},
		{`{"$max":{"a":{"$date":"2020-01-01T00:00:00Z"}}}`, `{"a":7}`, `{"a":{"$date":"2020-01-01T00:00:00Z"}}`},
		{`{"$min":{"a":5}}`, `{"a":6}`, `{"a":5}`},
		{`{"$push":{"a":1}}`, `{}`, `{"a":[1]}`},
		{`{"$push":{"a":{"$each":[3,4],"$slice":-3}}}`, `{"a":[1,2]}`, `{"a":[2,3,4]}`},
		{`{"b":2}`, `{"_id":1,"a":1}`, `{"_id":1,"b":2}`},
		{`{"b":2,"_id":1}`, `{"_id":1,"a":1}`, `{"_id":1,"b":2}`},
		{`{}`, `{"_id":1,"a":1}`, `{"_id":1}`},
	} {
		u, err := query.ParseUpdate(value(t, c.update))
		if err != nil {
			t.Errorf("%s: %v", c.update, err)
			continue
		}
		before := doc(t, c.before)
		kept := slices.Clone(before)
		after, err := u.Apply(before, false)
		if err != nil || show(after) != compact(t, c.after) {
			t.Errorf("%s makes of %s: %s, %v", c.update, c.before, show(after), err)
		}
		if !slices.Equal(before, kept) {
			t.Errorf("%s changed the document that it was given", c.update)
		}
	}
}

func TestUpdateErrors(t *testing.T) {
	for _, c := range []struct {
		update, doc string
		code        int32
	}{
		{`{"$foo":{"a":1}}`, `{}`, query.FailedToParse},
		{`{"$set":1}`, `{}`, query.FailedToParse},
		{`{"$set":{"a":1},"b":2}`, `{}`, query.FailedToParse},
		{`{"b":2,"$set":{"a":1}}`, `{}`, query.DollarPrefixedFieldName},
		{`{"$set":{"a":1},"$inc":{"a":1}}`, `{}`, query.ConflictingUpdateOperators},
		{`{"$set":{"a":1,"a.b":1}}`, `{}`, query.ConflictingUpdateOperators},
		{`{"$set":{"_id":2}}`, `{"_id":1}`, query.ImmutableField},
		{`{"$unset":{"_id":""}}`, `{"_id":1}`, query.ImmutableField},
		{`{"_id":2}`, `{"_id":1}`, query.ImmutableField},
		{`{"$inc":{"a":1}}`, `{"a":"x"}`, query.TypeMismatch},
		{`{"$inc":{"a":"x"}}`, `{}`, query.TypeMismatch},
		{`{"$inc":{"a":1}}`, `{"a":{"$numberLong":"9223372036854775807"}}`, query.BadValue},
		{`{"$push":{"a":1}}`, `{"a":1}`, query.BadValue},
		{`{"$push":{"a":{"$each":[1],"$sort":1}}}`, `{}`, query.BadValue},
		{`{"$inc":{"a":1}}`, `{"a":{"$numberDecimal":"1"}}`, query.BadValue},
		{`{"$inc":{"a":{"$numberDecimal":"1"}}}`, `{"a":1}`, query.BadValue},
		{`{"$push":{"a":{"$each":[1],"$position":0}}}`, `{}`, query.BadValue},
		{`{"$mul":{"a":2}}`, `{"a":1}`, query.FailedToParse},
		{`{"$rename":{"a":"b"}}`, `{"a":1}`, query.FailedToParse},
		{`{"$currentDate":{"a":true}}`, `{}`, query.FailedToParse},
		{`{"$addToSet":{"a":1}}`, `{}`, query.FailedToParse},
		{`{"$pull":{"a":1}}`, `{}`, query.FailedToParse},
		{`{"$pop":{"a":1}}`, `{}`, query.FailedToParse},
		{`[{"$unset":"a"}]`, `{}`, query.FailedToParse},
		{`{"$set":{"a.b":1}}`, `{"a":1}`, query.PathNotViable},
		{`{"$set":{"a.b":1}}`, `{"a":[1]}`, query.PathNotViable},
		{`{"$set":{"a..b":1}}`, `{}`, query.EmptyFieldName},
		{`{"$set":{"a.$":1}}`, `{}`, query.BadValue},
		{`{"$set":{"a.$b":1}}`, `{}`, query.DollarPrefixedFieldName},
	} {
		u, err := query.ParseUpdate(value(t, c.update))
		if err == nil {
			_, err = u.Apply(doc(t, c.doc), false)
		}
		if code(t, err) != c.code {
			t.Errorf("%s on %s: %v", c.update, c.doc, err)
		}
	}
}

func TestAnUpdateOfNothingReturnsTheSameDocument(t *testing.T) {
	for _, update := range []string{`{"$set":{"a":1}}`, `{"$max":{"a":0}}`, `{"$inc":{"a":0}}`, `{"$unset":{"b":""}}`, `{"_id":1,"a":1}`} {
		u, err := query.ParseUpdate(value(t, update))
		require.NoError(t, err)
		before := doc(t, `{"_id":1,"a":1}`)
		after, err := u.Apply(before, false)
		if err != nil || &after[0] != &before[0] {
			t.Errorf("%s: another document, %v", update, err)
		}
	}
}

func TestProjections(t *testing.T) {
	const d = `{"_id":1,"a":{"b":1,"c":2},"d":[{"b":1,"c":2},3],"e":5}`
	for projection, want := range map[string]string{
		`{}`:                        d,
		`{"e":1}`:                   `{"_id":1,"e":5}`,
		`{"_id":0,"e":1}`:           `{"e":5}`,
		`{"_id":1}`:                 `{"_id":1}`,
		`{"_id":0}`:                 `{"a":{"b":1,"c":2},"d":[{"b":1,"c":2},3],"e":5}`,
		`{"a.b":1,"d.b":1}`:         `{"_id":1,"a":{"b":1},"d":[{"b":1}]}`,
		`{"a":{"b":1}}`:             `{"_id":1,"a":{"b":1}}`,
		`{"a.b":0,"d.b":0,"_id":0}`: `{"a":{"c":2},"d":[{"c":2},3],"e":5}`,
		`{"a":0,"_id":1}`:           `{"_id":1,"d":[{"b":1,"c":2},3],"e":5}`,
	} {
		p, err := query.ParseProjection(doc(t, projection))
		if err != nil {
			t.Errorf("%s: %v", projection, err)
			continue
		}
		if got := p.Apply(doc(t, d)); show(got) != compact(t, want) {
			t.Errorf("%s leaves %s", projection, show(got))
		}
	}
	for projection, want := range map[string]int32{`{"a":1,"b":0}`: 31254, `{"a":0,"b":1}`: 31253, `{"a":{"$slice":1}}`: 168,
		`{"x":"$a"}`:      168,
		`{"a":1,"a.b":1}`: 31249} {
		if _, err := query.ParseProjection(doc(t, projection)); code(t, err) != want {
			t.Errorf("%s: %v", projection, err)
		}
	}
}

func TestSort(t *testing.T) {
	for sort, want := range map[string]string{
		`{"a":1}`:        `{"n":0},{"a":null,"n":1},{"a":[3,0],"n":5},{"a":1,"n":2},{"a":2,"n":3},{"a":"x","n":4}`,
		`{"a":-1}`:       `{"a":"x","n":4},{"a":[3,0],"n":5},{"a":2,"n":3},{"a":1,"n":2},{"n":0},{"a":null,"n":1}`,
		`{"a":1,"n":-1}`: `{"a":null,"n":1},{"n":0},{"a":[3,0],"n":5},{"a":1,"n":2},{"a":2,"n":3},{"a":"x","n":4}`,
	} {
		s, err := query.ParseKeyPattern(doc(t, sort))
		require.NoError(t, err)
		var docs []bson.Raw
		for _, text := range []string{`{"n":0}`, `{"a":null,"n":1}`, `{"a":1,"n":2}`, `{"a":2,"n":3}`, `{"a":"x","n":4}`, `{"a":[3,0],"n":5}`} {
			docs = append(docs, doc(t, text))
		}
		sorted, err := s.Sort(docs)
		require.NoError(t, err)
		if got := shown(sorted); got != compact(t, `{"x":[`+want+`]}`) {
			t.Errorf("%s: %s", sort, got)
		}
	}
	if _, err := query.ParseKeyPattern(doc(t, `{"a":"x"}`)); code(t, err) != query.BadValue {
		t.Errorf("a direction of %q: %v", "x", err)
	}
}

func shown(docs []bson.Raw) string {
	return show(bson.D{{Key: "x", Value: append([]bson.Raw{}, docs...)}})
}

func TestPipelines(t *testing.T) {
	docs := []string{`{"_id":1,"k":"a","n":1,"l":[1,2]}`, `{"_id":2,"k":"b","n":2.5,"l":[]}`, `{"_id":3,"k":"a","n":{"$numberLong":"4"}}`}
	for pipeline, want := range map[string]string{
		`[]`: strings.Join(docs, ","),
		`[{"$match":{"k":"a"}},{"$group":{"_id":1,"n":{"$sum":1}}}]`: `{"_id":1,"n":2}`,
		`[{"$group":{"_id":"$k","s":{"$sum":"$n"},"c":{"$sum":1}}}]`: `{"_id":"a","s":{"$numberLong":"5"},"c":2},` +
			`{"_id":"b","s":2.5,"c":1}`,
		`[{"$sort":{"_id":-1}},{"$skip":1},{"$limit":1},{"$project":{"n":1}}]`: `{"_id":2,"n":2.5}`,
	} {
		p, err := query.ParsePipeline(value(t, pipeline).Value)
		if err != nil {
			t.Errorf("%s: %v", pipeline, err)
			continue
		}
		var all []bson.Raw
		for _, d := range docs {
			all = append(all, doc(t, d))
		}
		got, err := p.Run(all)
		if err != nil || shown(got) != compact(t, `{"x":[`+want+`]}`) {
			t.Errorf("%s: %s, %v", pipeline, shown(got), err)
		}
	}
	for pipeline, want := range map[string]int32{`[{"$foo":{}}]`: query.UnknownStage, `[{"$limit":0}]`: 15958, `[{}]`: 40323,
		`[{"$group":{"n":{"$sum":1}}}]`: 15955, `[{"$group":{"_id":1,"n":{"$foo":1}}}]`: 15952, `[{"$lookup":{}}]`: query.UnknownStage,
		`[{"$count":"n"}]`: query.UnknownStage, `[{"$unwind":"$l"}]`: query.UnknownStage, `[{"$set":{"x":1}}]`: query.UnknownStage,
		`[{"$group":{"_id":1,"n":{"$avg":"$n"}}}]`: 15952, `[{"$group":{"_id":{"$pow":["$n",1]}}}]`: 168, `[{"$group":{"_id":"$$NOW"}}]`: 16410} {
		if _, err := query.ParsePipeline(value(t, pipeline).Value); code(t, err) != want {
			t.Errorf("%s: %v", pipeline, err)
		}
	}
}

func TestKeys(t *testing.T) {
	for _, c := range []struct{ pattern, doc, want string }{
		{`{"a":1,"b":1}`, `{"a":1}`, `[1,null]`},
		{`{"a":1,"b":1}`, `{"a":[1,2],"b":3}`, `[1,3],[2,3]`},
		{`{"a.b":1,"a.c":1}`, `{"a":[{"b":1,"c":2},{"b":3},4]}`, `[1,2],[3,null],[null,null]`},
		{`{"a":1}`, `{"a":[]}`, `[{"$undefined":true}]`},
		{`{"a.b":1}`, `{"a":[]}`, `[null]`},
		{`{"a":1}`, `{"a":[[1,2]]}`, `[[1,2]]`},
		{`{"a.0":1}`, `{"a":[7,8]}`, `[7]`},
	} {
		p, err := query.ParseKeyPattern(doc(t, c.pattern))
		require.NoError(t, err)
		keys, _, err := p.Keys(doc(t, c.doc))
		if got := show(bson.D{{Key: "x", Value: keys}}); err != nil || got != compact(t, `{"x":[`+c.want+`]}`) {
			t.Errorf("%s of %s: %s, %v", c.pattern, c.doc, got, err)
		}
	}
	p, _ := query.ParseKeyPattern(doc(t, `{"a":1,"b":1}`))
	if _, _, err := p.Keys(doc(t, `{"a":[1],"b":[2]}`)); code(t, err) != query.CannotIndexParallelArrays {
		t.Errorf("parallel arrays: %v", err)
	}
}

func TestBounds(t *testing.T) {
	for _, c := range []struct {
		filter  string
		in, out []string
	}{
		{`{"a":1}`, []string{`1`, `1.0`}, []string{`2`, `"1"`, `null`}},
		{`{"a":{"$gt":1,"$lte":3}}`, []string{`2`, `3`}, []string{`1`, `4`, `"2"`}},
		{`{"a":{"$gte":1}}`, []string{`1`, `{"$numberDouble":"Infinity"}`}, []string{`""`, `0`}},
		{`{"a":{"$in":[3,1]}}`, []string{`1`, `3`}, []string{`2`}},
		{`{"a":null}`, []string{`null`}, []string{`1`, `{"$minKey":1}`}},
		{`{"a":{"$exists":false}}`, []string{`null`}, []string{`1`}},
		{`{"$or":[{"a":1},{"a":{"$gt":5}}]}`, []string{`1`, `6`}, []string{`2`, `5`}},
		{`{"$or":[{"a":1},{"b":5}]}`, []string{`1`, `6`, `"x"`}, nil},
		{`{"a":"x","b":{"$gt":5}}`, []string{`"x"`}, []string{`"y"`}},
		{`{"a":{"$gte":"x"}}`, []string{`"y"`}, []string{`{}`, `1`}},
	} {
		f, err := query.ParseFilter(doc(t, c.filter))
		require.NoError(t, err)
		b := f.Bounds("a")
		for _, v := range c.in {
			if !b.Contains(value(t, v)) {
				t.Errorf("%s: %s is out", c.filter, v)
			}
		}
		for _, v := range c.out {
			if b.Contains(value(t, v)) {
				t.Errorf("%s: %s is in", c.filter, v)
			}
		}
	}
}

func TestImplies(t *testing.T) {
	for _, c := range []struct {
		filter, partial string
		want            bool
	}{
		{`{"a":1}`, `{}`, true},
		{`{"a":1,"gone":true}`, `{"gone":true}`, true},
		{`{"a":1}`, `{"gone":true}`, false},
		{`{"a":5}`, `{"a":{"$gt":3}}`, true},
		{`{"a":2}`, `{"a":{"$gt":3}}`, false},
		{`{"a":5}`, `{"a":{"$exists":true}}`, true},
		{`{"a":null}`, `{"a":{"$exists":true}}`, false},
		{`{"a":{"$exists":true}}`, `{"a":{"$exists":true}}`, true},
		{`{"b":1}`, `{"a":{"$exists":true}}`, false},
		{`{"a":{"$type":"null"}}`, `{"a":{"$type":"null"}}`, true},
		{`{"a":5}`, `{"a":{"$in":[4,5]}}`, true},
		{`{}`, `{"a":{"$lte":{"$maxKey":1}}}`, false},
	} {
		f, err := query.ParseFilter(doc(t, c.filter))
		require.NoError(t, err)
		p, err := query.ParseFilter(doc(t, c.partial))
		require.NoError(t, err)
		if got := f.Implies(p); got != c.want {
			t.Errorf("%s implies %s: %v", c.filter, c.partial, got)
		}
	}
}
