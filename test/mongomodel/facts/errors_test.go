package facts

// refuses says with which code a command is refused, and what the error says. Documents, and a
// command that has to succeed, may come before it.
func refuses(name, page, docs, before, command string, code int, said string) fact {
	source := manual + page
	return fact{name: name, source: source, check: func(t *trial) {
		t.insert(docs)
		if before != "" {
			t.command(before)
		}
		t.refused(t.db.RunCommand(t.Context(), t.doc(command)).Err(), code, said)
	}}
}

// anyCode is for refusals whose code is not the same in all versions.
const anyCode = 0

const codesPage = "reference/error-codes/"

func refusesUpdate(name, page, doc, update string, code int, said string) fact {
	return refuses(name, page, doc, "", `{"update":"c","updates":[{"q":{"_id":1},"u":`+update+`}]}`, code, said)
}

var refusals = []fact{
	refuses("a filter's unknown operator is BadValue", codesPage, "", "", `{"find":"c","filter":{"a":{"$foo":1}}}`, 2, "$foo"),
	refuses("a filter's unknown top level operator is BadValue", codesPage, "", "", `{"find":"c","filter":{"$foo":1}}`, 2, "$foo"),
	refuses("$in without an array is BadValue", "reference/operator/query/in/", "", "", `{"find":"c","filter":{"a":{"$in":1}}}`, 2,
		"$in needs an array"),
	refuses("$or of nothing is BadValue", "reference/operator/query/or/", "", "", `{"find":"c","filter":{"$or":[]}}`, 2, "array"),
	refuses("a hint to no index is BadValue", "reference/method/cursor.hint/", `{"_id":1}`, "", `{"find":"c","hint":"nope"}`, 2,
		"hint provided does not correspond to an existing index"),
	refuses("an unknown command is CommandNotFound", codesPage, "", "", `{"foo":1}`, 59, "foo"),
	refuses("an unknown stage has code 40324", "reference/operator/aggregation-pipeline/", "", "",
		`{"aggregate":"c","pipeline":[{"$foo":1}],"cursor":{}}`, 40324, "$foo"),
	refuses("$limit of 0 has code 15958", "reference/operator/aggregation/limit/", "", "",
		`{"aggregate":"c","pipeline":[{"$limit":0}],"cursor":{}}`, 15958, "positive"),
	refuses("a projection both ways is refused", "reference/method/db.collection.find/", `{"_id":1}`, "",
		`{"find":"c","projection":{"a":1,"b":0}}`, 31254, "b"),
	refusesUpdate("an unknown operator of an update is FailedToParse", updatePage, `{"_id":1}`, `{"$foo":{"a":1}}`, 9,
		"Unknown modifier: $foo"),
	refusesUpdate("changing the _id is ImmutableField", "core/document/", `{"_id":1}`, `{"$set":{"_id":2}}`, 66, "_id"),
	refusesUpdate("a replacement with another _id is ImmutableField", "reference/method/db.collection.replaceOne/", `{"_id":1}`, `{"_id":2}`,
		66, "_id"),
	refusesUpdate("two changes of one field are a conflict", updatePage, `{"_id":1}`, `{"$set":{"a":1},"$inc":{"a":1}}`, 40,
		"would create a conflict at 'a'"),
	refusesUpdate("changes of a field and of one in it are a conflict", updatePage, `{"_id":1}`, `{"$set":{"a":{},"a.b":1}}`, 40,
		"would create a conflict at 'a'"),
	refusesUpdate("$inc of a string is TypeMismatch", updatePage+"inc/", `{"_id":1,"a":"x"}`, `{"$inc":{"a":1}}`, 14,
		"Cannot apply $inc to a value of non-numeric type"),
	refusesUpdate("$inc by a string is TypeMismatch", updatePage+"inc/", `{"_id":1}`, `{"$inc":{"a":"x"}}`, 14,
		"Cannot increment with non-numeric argument"),
	refusesUpdate("$inc beyond 64 bits is BadValue", updatePage+"inc/", `{"_id":1,"a":{"$numberLong":"9223372036854775807"}}`,
		`{"$inc":{"a":1}}`, 2, "Failed to apply $inc"),
	refusesUpdate("$push to a number is BadValue", updatePage+"push/", `{"_id":1,"a":1}`, `{"$push":{"a":1}}`, 2, "must be an array"),
	refusesUpdate("$set into a number is PathNotViable", updatePage+"set/", `{"_id":1,"a":1}`, `{"$set":{"a.b":1}}`, 28,
		"Cannot create field 'b'"),
	refusesUpdate("an empty name in a path is EmptyFieldName", updatePage+"set/", `{"_id":1}`, `{"$set":{"a..b":1}}`, 56, "empty field name"),
	refusesUpdate("an operator after fields is refused", updatePage, `{"_id":1}`, `{"a":1,"$set":{"b":1}}`, 52, "$set"),
	refuses("a replacement of many is FailedToParse", "reference/command/update/", `{"_id":1}`, "",
		`{"update":"c","updates":[{"q":{},"u":{"a":1},"multi":true}]}`, 9, "multi update is not supported for replacement-style update"),
	refuses("creating a collection again with other options is NamespaceExists", "reference/command/create/", "", `{"create":"c"}`,
		`{"create":"c","capped":true,"size":4096}`, 48, "already exists"),
	refuses("a capped collection needs a size", "reference/command/create/", "", "", `{"create":"c","capped":true}`, 72, "size"),
	refuses("listing the indexes of no collection is NamespaceNotFound", "reference/command/listIndexes/", "", "", `{"listIndexes":"nope"}`,
		26, "nope"),
	refuses("dropping no index is IndexNotFound", "reference/command/dropIndexes/", `{"_id":1}`, "", `{"dropIndexes":"c","index":"nope"}`, 27,
		"nope"),
	refuses("the index on _id cannot be dropped", "reference/command/dropIndexes/", `{"_id":1}`, "", `{"dropIndexes":"c","index":"_id_"}`, 72,
		"_id"),
	refuses("the same keys under another name are IndexOptionsConflict", "reference/command/createIndexes/", "",
		`{"createIndexes":"c","indexes":[{"key":{"a":1},"name":"a"}]}`, `{"createIndexes":"c","indexes":[{"key":{"a":1},"name":"b"}]}`, 85,
		"different name"),
	refuses("the same index expiring otherwise is IndexOptionsConflict", "core/index-ttl/", "",
		`{"createIndexes":"c","indexes":[{"key":{"a":1},"name":"a","expireAfterSeconds":5}]}`,
		`{"createIndexes":"c","indexes":[{"key":{"a":1},"name":"a","expireAfterSeconds":6}]}`, 85, "different options"),
	refuses("another index of the same name is IndexKeySpecsConflict", "reference/command/createIndexes/", "",
		`{"createIndexes":"c","indexes":[{"key":{"a":1},"name":"a"}]}`, `{"createIndexes":"c","indexes":[{"key":{"b":1},"name":"a"}]}`, 86,
		"same name"),
	refuses("an unknown option of an index is refused", "reference/command/createIndexes/", "", "",
		`{"createIndexes":"c","indexes":[{"key":{"a":1},"name":"a","foo":1}]}`, 197, "foo"),
	refuses("a unique index cannot be built over duplicates", "core/index-unique/", `{"_id":1,"a":1},{"_id":2,"a":1}`, "",
		`{"createIndexes":"c","indexes":[{"key":{"a":1},"name":"a","unique":true}]}`, 11000, "E11000 duplicate key error"),
	refuses("arrays in two fields of an index are refused", "core/indexes/index-types/index-multikey/", "",
		`{"createIndexes":"c","indexes":[{"key":{"a":1,"b":1},"name":"ab"}]}`, `{"insert":"c","documents":[{"_id":1,"a":[1],"b":[1]}]}`, 171,
		"parallel arrays"),
	refuses("getMore of no cursor is CursorNotFound", "reference/command/getMore/", `{"_id":1}`, "",
		`{"getMore":{"$numberLong":"123456789"},"collection":"c"}`, 43, "123456789"),
	refuses("an _id cannot be an array", "core/document/", "", "", `{"insert":"c","documents":[{"_id":[1]}]}`, anyCode, "array"),
	refuses("a tailable cursor needs a capped collection", "core/tailable-cursors/", `{"_id":1}`, "", `{"find":"c","tailable":true}`, 2,
		"tailable"),
}
