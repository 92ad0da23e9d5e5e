package facts

import (
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// selects says which of some documents a filter selects, by their _id.
func selects(name, page, docs, filter, ids string) fact {
	return fact{name: name, source: manual + page, check: func(t *trial) {
		t.insert(docs)
		got := t.all(t.coll, filter, options.Find().SetProjection(bson.D{{Key: "_id", Value: 1}}).SetSort(bson.D{{Key: "_id", Value: 1}}))
		want := ""
		for i, id := range t.docs(ids) {
			if i > 0 {
				want += ","
			}
			want += show(bson.D{{Key: "_id", Value: id}})
		}
		if got != want {
			t.Errorf("%s selects %s, want %s", filter, got, want)
		}
	}}
}

var filters = []fact{
	selects("numbers of all types are compared by value", "reference/bson-type-comparison-order/",
		`{"_id":1,"a":1},{"_id":2,"a":1.0},{"_id":3,"a":{"$numberLong":"1"}},{"_id":4,"a":{"$numberDecimal":"1.0"}},{"_id":5,"a":"1"}`,
		`{"a":1}`, `1,2,3,4`),
	selects("equality with an array's element", "tutorial/query-arrays/", `{"_id":1,"a":[1,2]},{"_id":2,"a":[3]},{"_id":3,"a":2}`, `{"a":2}`,
		`1,3`),
	selects("equality with an array is of all of it in order", "tutorial/query-arrays/",
		`{"_id":1,"a":[1,2]},{"_id":2,"a":[2,1]},{"_id":3,"a":[1,2,3]}`, `{"a":[1,2]}`, `1`),
	selects("conditions on an array may hold for different elements", "tutorial/query-arrays/",
		`{"_id":1,"a":[10,25]},{"_id":2,"a":[17]},{"_id":3,"a":[30]}`, `{"a":{"$gt":15,"$lt":20}}`, `1,2`),
	selects("a document is equal with its fields in the same order only", "tutorial/query-embedded-documents/",
		`{"_id":1,"a":{"x":1,"y":2}},{"_id":2,"a":{"y":2,"x":1}}`, `{"a":{"x":1,"y":2}}`, `1`),
	selects("a path goes into the documents of an array", "tutorial/query-array-of-documents/",
		`{"_id":1,"a":[{"x":1},{"x":5}]},{"_id":2,"a":[{"x":2}]}`, `{"a.x":5}`, `1`),
	selects("a path may name a position", "tutorial/query-array-of-documents/", `{"_id":1,"a":[{"x":1},{"x":5}]},{"_id":2,"a":[{"x":5}]}`,
		`{"a.0.x":5}`, `2`),
	selects("null selects null and missing", "tutorial/query-for-null-fields/", `{"_id":1,"a":null},{"_id":2},{"_id":3,"a":0}`, `{"a":null}`,
		`1,2`),
	selects("$exists false selects missing alone", "tutorial/query-for-null-fields/", `{"_id":1,"a":null},{"_id":2},{"_id":3,"a":0}`,
		`{"a":{"$exists":false}}`, `2`),
	selects("$exists true selects null too", "reference/operator/query/exists/", `{"_id":1,"a":null},{"_id":2},{"_id":3,"a":0}`,
		`{"a":{"$exists":true}}`, `1,3`),
	selects("$type 10 selects null alone", "tutorial/query-for-null-fields/", `{"_id":1,"a":null},{"_id":2}`, `{"a":{"$type":10}}`, `1`),
	selects("$type number selects all of them", "reference/operator/query/type/",
		`{"_id":1,"a":1},{"_id":2,"a":1.5},{"_id":3,"a":{"$numberLong":"1"}},{"_id":4,"a":{"$numberDecimal":"1"}},{"_id":5,"a":"1"}`,
		`{"a":{"$type":"number"}}`, `1,2,3,4`),
	selects("$type array selects arrays as such", "reference/operator/query/type/", `{"_id":1,"a":[]},{"_id":2,"a":[1]},{"_id":3,"a":1}`,
		`{"a":{"$type":"array"}}`, `1,2`),
	selects("comparisons select values of the operand's type", "reference/operator/query-comparison/",
		`{"_id":1,"a":5},{"_id":2,"a":"5"},{"_id":3,"a":true},{"_id":4}`, `{"a":{"$gt":1}}`, `1`),
	selects("$ne selects documents without the field", "reference/operator/query/ne/", `{"_id":1,"a":1},{"_id":2,"a":2},{"_id":3}`,
		`{"a":{"$ne":1}}`, `2,3`),
	selects("$nin selects documents without the field", "reference/operator/query/nin/", `{"_id":1,"a":1},{"_id":2,"a":2},{"_id":3}`,
		`{"a":{"$nin":[1,5]}}`, `2,3`),
	selects("$in selects by any of its values", "reference/operator/query/in/", `{"_id":1,"a":1},{"_id":2,"a":[2,9]},{"_id":3,"a":3}`,
		`{"a":{"$in":[1,2]}}`, `1,2`),
	selects("$in with null selects missing", "reference/operator/query/in/", `{"_id":1,"a":1},{"_id":2},{"_id":3,"a":null}`,
		`{"a":{"$in":[null]}}`, `2,3`),
	selects("$not selects documents without the field", "reference/operator/query/not/", `{"_id":1,"a":1},{"_id":2,"a":9},{"_id":3}`,
		`{"a":{"$not":{"$gt":5}}}`, `1,3`),
	selects("$or", "reference/operator/query/or/", `{"_id":1,"a":1},{"_id":2,"b":1},{"_id":3}`, `{"$or":[{"a":1},{"b":1}]}`, `1,2`),
	selects("$nor", "reference/operator/query/nor/", `{"_id":1,"a":1},{"_id":2,"b":1},{"_id":3}`, `{"$nor":[{"a":1},{"b":1}]}`, `3`),
	selects("$and", "reference/operator/query/and/", `{"_id":1,"a":[1,2]},{"_id":2,"a":[1]}`, `{"$and":[{"a":1},{"a":2}]}`, `1`),
	selects("a 64 bit number is not rounded to be compared with a double", "reference/bson-type-comparison-order/",
		`{"_id":1,"a":{"$numberLong":"9007199254740993"}},{"_id":2,"a":9007199254740992.0}`, `{"a":{"$numberLong":"9007199254740993"}}`, `1`),
}

// changes says what an update makes of a document, seen by findAndModify.
func changes(name, page, before, update, after string) fact {
	return fact{name: name, source: manual + page, check: func(t *trial) {
		t.insert(before)
		var u any = t.doc(`{"u":` + update + `}`)[0].Value
		got, err := t.coll.FindOneAndUpdate(t.Context(), bson.D{}, u, options.FindOneAndUpdate().SetReturnDocument(options.After)).Raw()
		t.ok(err)
		t.is(show(got), after)
	}}
}

const updatePage = "reference/operator/update/"

var updates = []fact{
	changes("$set makes the documents on its path", updatePage+"set/", `{"_id":1}`, `{"$set":{"a.b":1}}`, `{"_id":1,"a":{"b":1}}`),
	changes("new fields come in order of their names", updatePage+"set/", `{"_id":1}`, `{"$set":{"b":1,"a":2}}`, `{"_id":1,"a":2,"b":1}`),
	changes("$set of an array's element beyond its end fills with null", updatePage+"set/", `{"_id":1,"a":[1]}`, `{"$set":{"a.2":3}}`,
		`{"_id":1,"a":[1,null,3]}`),
	changes("$unset leaves null in an array", updatePage+"unset/", `{"_id":1,"a":[1,2],"b":1}`, `{"$unset":{"a.0":"","b":""}}`,
		`{"_id":1,"a":[null,2]}`),
	changes("$inc sets a field that is not there", updatePage+"inc/", `{"_id":1}`, `{"$inc":{"n":2}}`, `{"_id":1,"n":2}`),
	changes("$inc of 32 bits grows to 64", "reference/bson-types/", `{"_id":1,"n":2147483647}`, `{"$inc":{"n":1}}`,
		`{"_id":1,"n":{"$numberLong":"2147483648"}}`),
	changes("$inc by 64 bits makes 64", "reference/bson-types/", `{"_id":1,"n":1}`, `{"$inc":{"n":{"$numberLong":"1"}}}`,
		`{"_id":1,"n":{"$numberLong":"2"}}`),
	changes("$max raises and does not lower", updatePage+"max/", `{"_id":1,"a":5,"b":5}`, `{"$max":{"a":6,"b":4,"c":1}}`,
		`{"_id":1,"a":6,"b":5,"c":1}`),
	changes("$max goes by the order of types", updatePage+"max/", `{"_id":1,"a":5}`, `{"$max":{"a":"x"}}`, `{"_id":1,"a":"x"}`),
	changes("$max replaces null", updatePage+"max/", `{"_id":1,"a":null}`, `{"$max":{"a":-5}}`, `{"_id":1,"a":-5}`),
	changes("$min lowers and does not raise", updatePage+"min/", `{"_id":1,"a":5,"b":5}`, `{"$min":{"a":6,"b":4}}`, `{"_id":1,"a":5,"b":4}`),
	changes("$push appends", updatePage+"push/", `{"_id":1,"a":[1]}`, `{"$push":{"a":2,"b":1}}`, `{"_id":1,"a":[1,2],"b":[1]}`),
	changes("$push with $each and $slice keeps the last", updatePage+"slice/", `{"_id":1,"a":[1,2]}`,
		`{"$push":{"a":{"$each":[3,4],"$slice":-3}}}`, `{"_id":1,"a":[2,3,4]}`),
	changes("$setOnInsert does nothing to what is there", updatePage+"setOnInsert/", `{"_id":1,"a":1}`,
		`{"$setOnInsert":{"a":2},"$set":{"b":1}}`, `{"_id":1,"a":1,"b":1}`),
}

// sorts says in which order documents come, by their _id.
func sorts(name, page, docs, sort, ids string) fact {
	return fact{name: name, source: manual + page, check: func(t *trial) {
		t.insert(docs)
		cur, err := t.coll.Find(t.Context(), bson.D{}, options.Find().SetSort(t.doc(sort)))
		t.ok(err)
		var got []struct {
			ID any `bson:"_id"`
		}
		t.ok(cur.All(t.Context(), &got))
		var all []any
		for _, d := range got {
			all = append(all, bson.D{{Key: "_id", Value: d.ID}})
		}
		var want []any
		for _, id := range t.docs(ids) {
			want = append(want, bson.D{{Key: "_id", Value: id}})
		}
		if show(all...) != show(want...) {
			t.Errorf("sorted by %s: %s, want %s", sort, show(all...), show(want...))
		}
	}}
}

const orderPage = "reference/bson-type-comparison-order/"

var orders = []fact{
	sorts("types have an order among each other", orderPage,
		`{"_id":1,"a":{"$maxKey":1}},{"_id":2,"a":{"$timestamp":{"t":1,"i":1}}},{"_id":3,"a":{"$date":"2020-01-01T00:00:00Z"}},`+
			`{"_id":4,"a":true},`+
			`{"_id":5,"a":{"$oid":"000000000000000000000001"}},{"_id":6,"a":{"$binary":{"base64":"AA==","subType":"00"}}},`+
			`{"_id":7,"a":{"x":1}},{"_id":8,"a":"x"},`+
			`{"_id":9,"a":1},{"_id":10,"a":null},{"_id":11,"a":{"$minKey":1}},{"_id":12,"a":{"$regularExpression":{"pattern":"a","options":""}}}`,
		`{"a":1}`, `11,10,9,8,7,6,5,4,3,2,12,1`),
	sorts("an array is sorted by its least element, or its greatest", orderPage, `{"_id":1,"a":[5,9]},{"_id":2,"a":6},{"_id":3,"a":[1,7]}`,
		`{"a":1,"_id":1}`, `3,1,2`),
	sorts("an array is sorted by its greatest element going down", orderPage, `{"_id":1,"a":[5,9]},{"_id":2,"a":6},{"_id":3,"a":[1,7]}`,
		`{"a":-1,"_id":1}`, `1,3,2`),
	sorts("an empty array comes before null", orderPage, `{"_id":1,"a":null},{"_id":2,"a":[]},{"_id":3,"a":1}`, `{"a":1}`, `2,1,3`),
	sorts("missing is sorted as null", orderPage, `{"_id":1},{"_id":2,"a":null},{"_id":3,"a":-1}`, `{"a":1,"_id":-1}`, `2,1,3`),
	sorts("NaN is the least number", orderPage, `{"_id":1,"a":{"$numberDouble":"-Infinity"}},{"_id":2,"a":{"$numberDouble":"NaN"}},`+
		`{"_id":3,"a":{"$numberDecimal":"-1E+6000"}}`,
		`{"a":1}`, `2,1,3`),
	sorts("binaries go by length, then subtype, then content", orderPage,
		`{"_id":1,"a":{"$binary":{"base64":"AAA=","subType":"00"}}},{"_id":2,"a":{"$binary":{"base64":"AQ==","subType":"80"}}},`+
			`{"_id":3,"a":{"$binary":{"base64":"Ag==","subType":"00"}}}`,
		`{"a":1}`, `3,2,1`),
	sorts("documents go by type, then name, then value of their fields", orderPage,
		`{"_id":1,"a":{"b":1}},{"_id":2,"a":{"a":"x"}},{"_id":3,"a":{"a":2}},{"_id":4,"a":{}}`,
		`{"a":1}`, `4,3,1,2`),
	sorts("several fields", "reference/method/cursor.sort/", `{"_id":1,"a":1,"b":1},{"_id":2,"a":0,"b":5},{"_id":3,"a":1,"b":2}`,
		`{"a":1,"b":-1}`, `2,3,1`),
	sorts("strings go by their bytes", orderPage, `{"_id":1,"a":"b"},{"_id":2,"a":"B"},{"_id":3,"a":"é"},{"_id":4,"a":"a"}`, `{"a":1}`,
		`2,4,1,3`),
	{name: "a decimal comes back with its digits", source: manual + "reference/bson-types/", check: func(t *trial) {
		const d = `{"_id":1,"a":{"$numberDecimal":"1.500"},"b":{"$numberDecimal":"1E+20"},"c":{"$numberDecimal":"-0"}}`
		t.insert(d)
		t.is(t.stored(), d)
	}},
	{name: "fields keep their order, except for the _id", source: manual + "core/document/", check: func(t *trial) {
		t.insert(`{"b":1,"a":{"y":1,"x":2},"_id":1}`)
		t.is(t.stored(), `{"_id":1,"b":1,"a":{"y":1,"x":2}}`)
	}},
}

// leaves says what a projection leaves of a document.
func leaves(name, projection, want string) fact {
	return fact{name: name, source: manual + "tutorial/project-fields-from-query-results/", check: func(t *trial) {
		t.insert(`{"_id":1,"a":{"x":1,"y":2},"l":[{"x":1,"y":2},3],"z":5}`)
		t.is(t.all(t.coll, `{}`, options.Find().SetProjection(t.doc(projection))), want)
	}}
}

var projections = []fact{
	leaves("an inclusion keeps the _id", `{"z":1}`, `{"_id":1,"z":5}`),
	leaves("an inclusion may leave the _id out", `{"z":1,"_id":0}`, `{"z":5}`),
	leaves("an exclusion keeps the rest", `{"a":0,"l":0}`, `{"_id":1,"z":5}`),
	leaves("an exclusion of the _id alone", `{"_id":0}`, `{"a":{"x":1,"y":2},"l":[{"x":1,"y":2},3],"z":5}`),
	leaves("an inclusion within documents and arrays", `{"a.x":1,"l.x":1}`, `{"_id":1,"a":{"x":1},"l":[{"x":1}]}`),
	leaves("an exclusion within documents and arrays", `{"a.x":0,"l.x":0}`, `{"_id":1,"a":{"y":2},"l":[{"y":2},3],"z":5}`),
	leaves("an inclusion of the _id alone", `{"_id":1}`, `{"_id":1}`),
}

// computes says what a pipeline makes of three documents.
func computes(name, page, pipeline, want string) fact {
	return fact{name: name, source: manual + "reference/operator/aggregation/" + page, check: func(t *trial) {
		t.insert(`{"_id":1,"k":"a","n":1,"l":[1,2]},{"_id":2,"k":"b","n":2.5,"l":[]},{"_id":3,"k":"a","n":{"$numberLong":"4"}}`)
		cur, err := t.coll.Aggregate(t.Context(), t.docs(pipeline))
		t.ok(err)
		var docs []bson.Raw
		t.ok(cur.All(t.Context(), &docs))
		t.is(show(docs...), want)
	}}
}

var aggregation = []fact{
	computes("$group sums and counts", "group/", `{"$group":{"_id":"$k","s":{"$sum":"$n"},"c":{"$sum":1}}},{"$sort":{"_id":1}}`,
		`{"_id":"a","s":{"$numberLong":"5"},"c":2},{"_id":"b","s":2.5,"c":1}`),
	computes("$group keeps the lowest and the highest, of what is there", "min/",
		`{"$group":{"_id":"$k","a":{"$min":"$n"},"b":{"$max":"$n"},"c":{"$min":"$x"}}},{"$sort":{"_id":1}}`,
		`{"_id":"a","a":1,"b":{"$numberLong":"4"},"c":null},{"_id":"b","a":2.5,"b":2.5,"c":null}`),
	computes("$sort, $skip and $limit", "sort/", `{"$sort":{"_id":-1}},{"$skip":1},{"$limit":1},{"$project":{"_id":1}}`, `{"_id":2}`),
}
