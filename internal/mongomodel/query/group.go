package query

import (
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A groupField is a field of $group's documents: what an accumulator makes of an expression's values.
type groupField struct {
	name       string
	expression expression
	accumulate func(all []bson.RawValue) bson.RawValue
}

var accumulators = map[string]func(all []bson.RawValue) bson.RawValue{
	"$sum":   sum,
	"$count": sum,
	"$max":   func(all []bson.RawValue) bson.RawValue { return orNull(extreme(all, 1)) },
	"$min":   func(all []bson.RawValue) bson.RawValue { return orNull(extreme(all, -1)) },
	"$first": func(all []bson.RawValue) bson.RawValue { return orNull(all[0]) },
	"$last":  func(all []bson.RawValue) bson.RawValue { return orNull(all[len(all)-1]) },
	"$push": func(all []bson.RawValue) bson.RawValue {
		return arrayOf(slices.DeleteFunc(all, missing))
	},
	"$addToSet": func(all []bson.RawValue) bson.RawValue {
		return arrayOf(sortedUnique(slices.DeleteFunc(all, missing)))
	},
}

func parseGroup(operand bson.RawValue) (stage, error) {
	var id expression
	var all []groupField
	for k, v := range Fields(operand.Value) {
		var err error
		if string(k) == "_id" {
			id, err = parseExpression(v)
		} else {
			var f groupField
			f, err = parseGroupField(string(k), v)
			all = append(all, f)
		}
		if err != nil {
			return nil, err
		}
	}
	if id == nil {
		return nil, Errorf(15955, "a group specification must include an _id")
	}
	return func(docs []bson.Raw, now time.Time) ([]bson.Raw, error) { return group(docs, id, all, now) }, nil
}

func parseGroupField(name string, v bson.RawValue) (groupField, error) {
	var all []element
	if isDocument(v) {
		all = elements(v.Value)
	}
	if len(all) != 1 {
		return groupField{}, Errorf(40238, "The field '%s' must specify one accumulator", name)
	}
	operator, operand := all[0].key, all[0].value
	accumulate, ok := accumulators[operator]
	if !ok {
		return groupField{}, Errorf(15952, "unknown group operator '%s': it is not known to the model", operator)
	}
	if operator == "$count" {
		operand = intValue(1)
	}
	e, err := parseExpression(operand)
	return groupField{name, e, accumulate}, err
}

// group makes one document for each value of id, in the order in which they are met. The server promises no order.
func group(docs []bson.Raw, id expression, all []groupField, now time.Time) ([]bson.Raw, error) {
	type entry struct {
		id     bson.RawValue
		values [][]bson.RawValue // of each field
	}
	var ids []bson.RawValue // in order, to find the entries by
	var sorted, met []*entry
	for _, doc := range docs {
		s := &scope{root: doc, now: now}
		v, err := id(s)
		if err != nil {
			return nil, err
		}
		v = orNull(v)
		at, found := search(ids, v)
		if !found {
			e := &entry{id: v, values: make([][]bson.RawValue, len(all))}
			ids, sorted, met = slices.Insert(ids, at, v), slices.Insert(sorted, at, e), append(met, e)
		}
		for i, f := range all {
			x, err := f.expression(s)
			if err != nil {
				return nil, err
			}
			sorted[at].values[i] = append(sorted[at].values[i], x)
		}
	}
	var made []bson.Raw
	for _, e := range met {
		b := newBuilder(0)
		b.add("_id", e.id)
		for i, f := range all {
			b.add(f.name, f.accumulate(e.values[i]))
		}
		made = append(made, b.doc())
	}
	return made, nil
}
