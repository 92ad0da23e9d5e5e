package query

import (
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// updateOperators parse the operand that an operator has for one field.
var updateOperators map[string]func(c *fieldChange, operand bson.RawValue) error

func init() {
	updateOperators = map[string]func(c *fieldChange, operand bson.RawValue) error{
		"$set": parseSet, "$setOnInsert": parseSet, "$unset": parseUnset, "$inc": parseArithmetic, "$mul": parseArithmetic,
		"$min": parseMinMax, "$max": parseMinMax, "$currentDate": parseCurrentDate, "$rename": parseRename,
		"$push": parsePush, "$addToSet": parseAddToSet, "$pull": parsePull, "$pop": parsePop,
	}
}

func parseSet(c *fieldChange, operand bson.RawValue) error {
	c.create, c.onlyInserting = true, c.operator == "$setOnInsert"
	c.apply = func(bson.RawValue, application) (bson.RawValue, error) { return operand, nil }
	return nil
}

func parseUnset(c *fieldChange, _ bson.RawValue) error {
	c.apply = func(bson.RawValue, application) (bson.RawValue, error) { return bson.RawValue{}, nil }
	return nil
}

func parseArithmetic(c *fieldChange, operand bson.RawValue) error {
	verb, op := "increment", byte('+')
	if c.operator == "$mul" {
		verb, op = "multiply", '*'
	}
	if !isNumber(operand) {
		return Errorf(TypeMismatch, "Cannot %s with non-numeric argument: {%s: %s}", verb, c.name, operand)
	}
	operator, name := c.operator, c.name
	c.create = true
	c.apply = func(old bson.RawValue, a application) (bson.RawValue, error) {
		switch {
		case missing(old) && op == '+':
			return operand, nil
		case missing(old):
			zero, _ := arithmetic(op, operand, intValue(0))
			return zero, nil
		case !isNumber(old):
			return old, Errorf(TypeMismatch, "Cannot apply %s to a value of non-numeric type. {_id: %s} has the field '%s' of "+
				"non-numeric type %s", operator, a.id, name, TypeName(old))
		}
		result, ok := arithmetic(op, old, operand)
		if !ok {
			return old, Errorf(BadValue, "Failed to apply %s operations to current value (%s) for document {_id: %s}", operator, old, a.id)
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
	c.apply = func(old bson.RawValue, _ application) (bson.RawValue, error) {
		if missing(old) || Compare(operand, old)*sign > 0 {
			return operand, nil
		}
		return old, nil
	}
	return nil
}

func parseCurrentDate(c *fieldChange, operand bson.RawValue) error {
	timestamp := false
	switch {
	case operand.Type == bson.TypeBoolean:
	case isDocument(operand) && Lookup(operand.Value, "$type").Type == bson.TypeString:
		name := Lookup(operand.Value, "$type").StringValue()
		timestamp = name == "timestamp"
		if !timestamp && name != "date" {
			return Errorf(BadValue, "The '$type' string field is required to be 'date' or 'timestamp': {$currentDate: {field : "+
				"{$type: 'date'}}}")
		}
	default:
		return Errorf(BadValue, "%s is not valid type for $currentDate. Please use a boolean ('true') or a $type expression "+
			"({$type: 'timestamp/date'}).", TypeName(operand))
	}
	c.create = true
	c.apply = func(_ bson.RawValue, a application) (bson.RawValue, error) {
		if timestamp {
			return bson.RawValue{Type: bson.TypeTimestamp, Value: bsoncore.AppendTimestamp(nil, uint32(a.now.Unix()), 1)}, nil
		}
		return dateValue(a.now), nil
	}
	return nil
}

func parseRename(c *fieldChange, operand bson.RawValue) error {
	if operand.Type != bson.TypeString {
		return Errorf(BadValue, "The 'to' field for $rename must be a string: %s: %s", c.name, operand)
	}
	target, err := parseUpdatePath(operand.StringValue())
	if err != nil {
		return err
	}
	if slices.Equal(target, c.path) {
		return Errorf(BadValue, "The source and target field for $rename must differ: %s: %s", c.name, operand)
	}
	c.target = target
	return nil
}

// A push is the operand of $push: what is added, where, and how much of the array is kept.
type push struct {
	each           []bson.RawValue
	position, keep *int64
}

func parsePush(c *fieldChange, operand bson.RawValue) error {
	p, err := newPush(operand)
	if err != nil {
		return err
	}
	name := c.name
	c.create = true
	c.apply = func(old bson.RawValue, a application) (bson.RawValue, error) {
		if !missing(old) && !isArray(old) {
			return old, Errorf(BadValue, "The field '%s' must be an array but is of type %s in document {_id: %s}", name, TypeName(old), a.id)
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
		case key == "$position" && isWhole:
			p.position = &n
		default:
			return p, Errorf(BadValue, "%s: %s in $push is not known to the model", key, v)
		}
	}
	return p, nil
}

func (p push) onto(all []bson.RawValue) []bson.RawValue {
	at := len(all)
	if p.position != nil {
		n := *p.position
		if n < 0 {
			n = max(0, n+int64(len(all)))
		}
		at = int(min(n, int64(len(all))))
	}
	all = slices.Insert(all, at, p.each...)
	switch length := int64(len(all)); {
	case p.keep == nil:
		return all
	case *p.keep < 0:
		return all[max(0, length+*p.keep):]
	default:
		return all[:min(length, *p.keep)]
	}
}

func parseAddToSet(c *fieldChange, operand bson.RawValue) error {
	added := []bson.RawValue{operand}
	if isDocument(operand) {
		if each := Lookup(operand.Value, "$each"); isArray(each) {
			added = values(each.Value)
		} else if isOperators(operand) {
			return Errorf(BadValue, "$addToSet of %s is not known to the model", operand)
		}
	}
	name := c.name
	c.create = true
	c.apply = func(old bson.RawValue, _ application) (bson.RawValue, error) {
		if !missing(old) && !isArray(old) {
			return old, Errorf(BadValue, "Cannot apply $addToSet to non-array field. Field named '%s' has non-array type %s", name, TypeName(old))
		}
		all := values(old.Value)
		for _, v := range added {
			if !slices.ContainsFunc(all, func(x bson.RawValue) bool { return equal(x, v) }) {
				all = append(all, v)
			}
		}
		return arrayOf(all), nil
	}
	return nil
}

// parsePull reads a value to be removed from an array, or conditions on the elements or their fields.
func parsePull(c *fieldChange, operand bson.RawValue) error {
	var err error
	pulled := func(v bson.RawValue) bool { return equal(v, operand) }
	switch {
	case isOperators(operand) || operand.Type == bson.TypeRegex:
		var conditions and
		conditions, err = parseField("0", operand)
		pulled = func(v bson.RawValue) bool { return conditions.match(documentOf([]element{{"0", v}}).Value) }
	case isDocument(operand):
		var conditions and
		conditions, err = parseConditions(operand.Value)
		pulled = func(v bson.RawValue) bool { return isDocument(v) && conditions.match(v.Value) }
	}
	c.apply = func(old bson.RawValue, _ application) (bson.RawValue, error) {
		switch {
		case missing(old):
			return old, nil
		case !isArray(old):
			return old, Errorf(BadValue, "Cannot apply $pull to a non-array value")
		}
		return arrayOf(slices.DeleteFunc(values(old.Value), pulled)), nil
	}
	return err
}

func parsePop(c *fieldChange, operand bson.RawValue) error {
	n, ok := asInt64(operand)
	if !ok || n != 1 && n != -1 {
		return Errorf(FailedToParse, "$pop expects 1 or -1, found: %s", operand)
	}
	name := c.name
	c.apply = func(old bson.RawValue, _ application) (bson.RawValue, error) {
		switch {
		case missing(old):
			return old, nil
		case !isArray(old):
			return old, Errorf(TypeMismatch, "Path '%s' contains an element of non-array type '%s'", name, TypeName(old))
		}
		all := values(old.Value)
		switch {
		case len(all) == 0:
			return old, nil
		case n == 1:
			all = all[:len(all)-1]
		default:
			all = all[1:]
		}
		return arrayOf(all), nil
	}
	return nil
}

// plainPath returns the path that an expression like "$a.b" names.
func plainPath(s string) (string, bool) {
	path, ok := strings.CutPrefix(s, "$")
	return path, ok && path != "" && path[0] != '$'
}
