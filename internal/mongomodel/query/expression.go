package query

import (
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// An expression computes a value from a document. The zero value is that of a field which is not there.
type expression func(*scope) (bson.RawValue, error)

// A scope is what an expression may refer to.
type scope struct {
	root bson.Raw
	now  time.Time
}

// expressions are the operators that the model knows, each with how many arguments it takes (-1: any number) and what it
// makes of their values. See lazyExpressions for those which do not evaluate all of their arguments.
var expressions = map[string]struct {
	arguments int
	compute   func(args []bson.RawValue) (bson.RawValue, error)
}{
	"$eq":          {2, comparing(func(c int) bool { return c == 0 })},
	"$ne":          {2, comparing(func(c int) bool { return c != 0 })},
	"$gt":          {2, comparing(func(c int) bool { return c > 0 })},
	"$gte":         {2, comparing(func(c int) bool { return c >= 0 })},
	"$lt":          {2, comparing(func(c int) bool { return c < 0 })},
	"$lte":         {2, comparing(func(c int) bool { return c <= 0 })},
	"$cmp":         {2, func(a []bson.RawValue) (bson.RawValue, error) { return intValue(int64(Compare(a[0], a[1]))), nil }},
	"$not":         {1, func(a []bson.RawValue) (bson.RawValue, error) { return boolValue(!truth(a[0])), nil }},
	"$add":         {-1, folding('+')},
	"$multiply":    {-1, folding('*')},
	"$subtract":    {2, subtract},
	"$divide":      {2, divide},
	"$mod":         {2, modulo},
	"$max":         {-1, func(a []bson.RawValue) (bson.RawValue, error) { return orNull(extreme(spread(a), 1)), nil }},
	"$min":         {-1, func(a []bson.RawValue) (bson.RawValue, error) { return orNull(extreme(spread(a), -1)), nil }},
	"$sum":         {-1, func(a []bson.RawValue) (bson.RawValue, error) { return sum(spread(a)), nil }},
	"$concat":      {-1, concat},
	"$size":        {1, arraySize},
	"$type":        {1, func(a []bson.RawValue) (bson.RawValue, error) { return stringValue(TypeName(a[0])), nil }},
	"$in":          {2, isIn},
	"$arrayElemAt": {2, elementAt},
}

// lazyExpressions evaluate their arguments themselves.
var lazyExpressions = map[string]func(args []expression, s *scope) (bson.RawValue, error){
	"$and": func(args []expression, s *scope) (bson.RawValue, error) { return untilTruth(args, s, false) },
	"$or":  func(args []expression, s *scope) (bson.RawValue, error) { return untilTruth(args, s, true) },
	"$ifNull": func(args []expression, s *scope) (v bson.RawValue, err error) {
		for _, e := range args {
			if v, err = e(s); err != nil || !missing(v) && v.Type != bson.TypeNull {
				break
			}
		}
		return v, err
	},
}

func parseExpression(v bson.RawValue) (expression, error) {
	switch v.Type {
	case bson.TypeString:
		return parseReference(v)
	case bson.TypeEmbeddedDocument:
		if isOperators(v) {
			return parseOperation(v)
		}
		return parseDocumentExpression(v)
	case bson.TypeArray:
		args, err := parseArguments(v)
		return func(s *scope) (bson.RawValue, error) {
			all, err := evaluate(args, s)
			for i := range all {
				all[i] = orNull(all[i])
			}
			return arrayOf(all), err
		}, err
	}
	return constant(v), nil
}

func constant(v bson.RawValue) expression {
	return func(*scope) (bson.RawValue, error) { return v, nil }
}

func parseReference(v bson.RawValue) (expression, error) {
	name := v.StringValue()
	path, isPath := strings.CutPrefix(name, "$")
	if !isPath {
		return constant(v), nil
	}
	variable, isVariable := strings.CutPrefix(path, "$")
	if isVariable {
		variable, path, _ = strings.Cut(variable, ".")
		switch variable {
		case "ROOT", "CURRENT":
		case "NOW":
			return func(s *scope) (bson.RawValue, error) { return dateValue(s.now), nil }, nil
		case "REMOVE":
			return constant(bson.RawValue{}), nil
		default:
			return nil, Errorf(17276, "Use of undefined variable: %s is not known to the model", variable)
		}
		if path == "" {
			return func(s *scope) (bson.RawValue, error) {
				return bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: s.root}, nil
			}, nil
		}
	}
	components := splitPath(path)
	for _, c := range components {
		if c == "" || c[0] == '$' {
			return nil, Errorf(16410, "FieldPath '%s' is not known to the model", name)
		}
	}
	return func(s *scope) (bson.RawValue, error) {
		return follow(bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: s.root}, components), nil
	}, nil
}

// follow returns what a path leads to in an expression: an array on the way gives an array of what its elements lead to.
func follow(v bson.RawValue, path []string) bson.RawValue {
	switch {
	case len(path) == 0:
		return v
	case isDocument(v):
		return follow(Lookup(v.Value, path[0]), path[1:])
	case isArray(v):
		var all []bson.RawValue
		for _, x := range Fields(v.Value) {
			if found := follow(x, path); !missing(found) {
				all = append(all, found)
			}
		}
		return arrayOf(all)
	}
	return bson.RawValue{}
}

func parseDocumentExpression(v bson.RawValue) (expression, error) {
	type part struct {
		key        string
		expression expression
	}
	var parts []part
	for k, x := range Fields(v.Value) {
		e, err := parseExpression(x)
		if err != nil {
			return nil, err
		}
		parts = append(parts, part{string(k), e})
	}
	return func(s *scope) (bson.RawValue, error) {
		var all []element
		for _, p := range parts {
			x, err := p.expression(s)
			if err != nil {
				return x, err
			}
			all = append(all, element{p.key, x})
		}
		return documentOf(all), nil
	}, nil
}

func parseArguments(v bson.RawValue) ([]expression, error) {
	operands := []bson.RawValue{v}
	if isArray(v) {
		operands = values(v.Value)
	}
	var args []expression
	for _, x := range operands {
		e, err := parseExpression(x)
		if err != nil {
			return nil, err
		}
		args = append(args, e)
	}
	return args, nil
}

func parseOperation(v bson.RawValue) (expression, error) {
	all := elements(v.Value)
	if len(all) != 1 {
		return nil, Errorf(15983, "An object representing an expression must have exactly one field: %s", v)
	}
	op, operand := all[0].key, all[0].value
	switch op {
	case "$literal":
		return constant(operand), nil
	case "$cond":
		return parseCond(operand)
	}
	args, err := parseArguments(operand)
	if err != nil {
		return nil, err
	}
	if lazy, ok := lazyExpressions[op]; ok {
		return func(s *scope) (bson.RawValue, error) { return lazy(args, s) }, nil
	}
	known, ok := expressions[op]
	switch {
	case !ok:
		return nil, Errorf(168, "Unrecognized expression '%s': it is not known to the model", op)
	case known.arguments >= 0 && known.arguments != len(args):
		return nil, Errorf(16020, "Expression %s takes exactly %d arguments. %d were passed in.", op, known.arguments, len(args))
	}
	return func(s *scope) (bson.RawValue, error) {
		computed, err := evaluate(args, s)
		if err != nil {
			return bson.RawValue{}, err
		}
		return known.compute(computed)
	}, nil
}

func evaluate(args []expression, s *scope) ([]bson.RawValue, error) {
	all := make([]bson.RawValue, len(args))
	for i, e := range args {
		v, err := e(s)
		if err != nil {
			return nil, err
		}
		all[i] = v
	}
	return all, nil
}

// parseCond reads [if, then, else] or {if: …, then: …, else: …}.
func parseCond(operand bson.RawValue) (expression, error) {
	if isDocument(operand) {
		var parts []bson.RawValue
		for _, name := range []string{"if", "then", "else"} {
			part := Lookup(operand.Value, name)
			if missing(part) {
				return nil, Errorf(17080, "Missing '%s' parameter to $cond", name)
			}
			parts = append(parts, part)
		}
		operand = arrayOf(parts)
	}
	args, err := parseArguments(operand)
	if err != nil {
		return nil, err
	}
	if len(args) != 3 {
		return nil, Errorf(16020, "Expression $cond takes exactly 3 arguments. %d were passed in.", len(args))
	}
	return func(s *scope) (bson.RawValue, error) {
		v, err := args[0](s)
		if err != nil {
			return v, err
		}
		if truth(v) {
			return args[1](s)
		}
		return args[2](s)
	}, nil
}

func untilTruth(args []expression, s *scope, end bool) (bson.RawValue, error) {
	for _, e := range args {
		v, err := e(s)
		if err != nil {
			return v, err
		}
		if truth(v) == end {
			return boolValue(end), nil
		}
	}
	return boolValue(!end), nil
}
