package query

import (
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// updateOperators parse the operand that an operator has for one field.
var updateOperators = map[string]func(c *fieldChange, operand bson.RawValue) error{
	"$set": parseSet, "$setOnInsert": parseSet, "$unset": parseUnset, "$inc": parseInc, "$min": parseMinMax, "$max": parseMinMax,
	"$push": parsePush,
}

func parseSet(c *fieldChange, operand bson.RawValue) error {
	c.create = true
	c.apply = func(bson.RawValue, bson.RawValue) (bson.RawValue, error) { return operand, nil }
	return nil
}

func parseUnset(c *fieldChange, _ bson.RawValue) error {
	c.apply = func(bson.RawValue, bson.RawValue) (bson.RawValue, error) { return bson.RawValue{}, nil }
	return nil
}

func parseInc(c *fieldChange, operand bson.RawValue) error {
	if !isNumber(operand) {
		return Errorf(TypeMismatch, "Cannot increment with non-numeric argument: {%s: %s}", c.name, operand)
	}
	c.create = true
	c.apply = func(old, id bson.RawValue) (bson.RawValue, error) {
		switch {
		case missing(old):
			return operand, nil
		case !isNumber(old):
			return old, Errorf(TypeMismatch, "Cannot apply $inc to a value of non-numeric type. {_id: %s} has the field '%s' of "+
				"non-numeric type %s", id, c.name, TypeName(old))
		}
		for _, v := range []bson.RawValue{old, operand} {
			if err := addable(v); err != nil {
				return old, err
			}
		}
		result, ok := add(old, operand)
		if !ok {
			return old, Errorf(BadValue, "Failed to apply $inc operations to current value (%s) for document {_id: %s}", old, id)
		}
		if equal(result, old) && result.Type == old.Type {
			return old, nil
		}
		return result, nil
	}
	return nil
}

func parseMinMax(c *fieldChange, operand bson.RawValue) error {
	sign := 1
	if c.operator == "$min" {
		sign = -1
	}
	c.create = true
	c.apply = func(old, _ bson.RawValue) (bson.RawValue, error) {
		if missing(old) || Compare(operand, old)*sign > 0 {
			return operand, nil
		}
		return old, nil
	}
	return nil
}

// A push is the operand of $push: the values to add, and how much of the array is kept.
type push struct {
	each []bson.RawValue
	keep *int64
}

func parsePush(c *fieldChange, operand bson.RawValue) error {
	p, err := newPush(operand)
	if err != nil {
		return err
	}
	c.create = true
	c.apply = func(old, id bson.RawValue) (bson.RawValue, error) {
		if !missing(old) && !isArray(old) {
			return old, Errorf(BadValue, "The field '%s' must be an array but is of type %s in document {_id: %s}", c.name, TypeName(old), id)
		}
		return arrayOf(p.onto(values(old.Value))), nil
	}
	return nil
}

func newPush(operand bson.RawValue) (push, error) {
	if !isDocument(operand) || missing(Lookup(operand.Value, "$each")) {
		if isOperators(operand) {
			return push{}, Errorf(BadValue, "$push of %s without $each is not known to the model", operand)
		}
		return push{each: []bson.RawValue{operand}}, nil
	}
	var p push
	for k, v := range Fields(operand.Value) {
		n, isWhole := asInt64(v)
		switch key := string(k); {
		case key == "$each" && isArray(v):
			p.each = values(v.Value)
		case key == "$slice" && isWhole:
			p.keep = &n
		default:
			return p, Errorf(BadValue, "%s: %s in $push is not known to the model", key, v)
		}
	}
	return p, nil
}

func (p push) onto(all []bson.RawValue) []bson.RawValue {
	all = slices.Concat(all, p.each)
	switch length := int64(len(all)); {
	case p.keep == nil:
		return all
	case *p.keep < 0:
		return all[max(0, length+*p.keep):]
	default:
		return all[:min(length, *p.keep)]
	}
}
