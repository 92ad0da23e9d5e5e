package query

import (
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

func splitPath(path string) []string { return strings.Split(path, ".") }

// position returns the place in an array that a path's component names.
func position(component string) (int, bool) {
	if component == "" || len(component) > 1 && component[0] == '0' || component[0] < '0' || component[0] > '9' {
		return 0, false
	}
	n, err := strconv.Atoi(component)
	return n, err == nil
}

func at(array []byte, component string) bson.RawValue {
	if _, ok := position(component); !ok {
		return bson.RawValue{}
	}
	return Lookup(array, component)
}

// visit calls found with each value that a path leads to, until it returns true. It looks into
// arrays on the way, so one path may lead to many values. A zero value stands for a path that leads
// nowhere. An array at its end counts for each of its elements and then for itself.
func visit(doc []byte, path []string, found func(bson.RawValue) bool) bool {
	v := Lookup(doc, path[0])
	rest := path[1:]
	if len(rest) == 0 {
		if isArray(v) {
			for _, x := range Fields(v.Value) {
				if found(x) {
					return true
				}
			}
		}
		return found(v)
	}
	switch v.Type {
	case bson.TypeEmbeddedDocument:
		return visit(v.Value, rest, found)
	case bson.TypeArray:
		return visitElements(v.Value, rest, found)
	}
	return found(bson.RawValue{})
}

func visitElements(array []byte, rest []string, found func(bson.RawValue) bool) bool {
	for _, x := range Fields(array) {
		if isDocument(x) && visit(x.Value, rest, found) {
			return true
		}
	}
	x := at(array, rest[0])
	switch {
	case missing(x):
		return false
	case len(rest) == 1:
		return found(x)
	case isDocument(x):
		return visit(x.Value, rest[1:], found)
	case isArray(x):
		return visitElements(x.Value, rest[1:], found)
	}
	return false
}

// A KeyPattern is the fields of an index or a sort and their directions.
type KeyPattern struct {
	Paths      []string
	Directions []int // 1 or -1
	split      [][]string
}

// Compare orders two keys, each with a value for each path.
func (p *KeyPattern) Compare(a, b []bson.RawValue) int {
	for i := range min(len(a), len(b)) {
		if c := Compare(a[i], b[i]); c != 0 {
			return c * p.Directions[i]
		}
	}
	return 0
}

// Keys returns a document's keys in an index: one, unless a path leads through an array; multikey
// is then true. A missing field is null in them. Arrays in two different fields are an error.
func (p *KeyPattern) Keys(doc bson.Raw) (keys [][]bson.RawValue, multikey bool, err error) {
	key := make([]bson.RawValue, len(p.split))
	single := true
	for i, path := range p.split {
		at := place{rest: path, in: bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: doc}}.walk()
		key[i] = orNull(at.in)
		single = single && !isArray(at.in)
	}
	if single { // as most are; collect is for the others
		return [][]bson.RawValue{key}, false, nil
	}
	places := make([]place, len(p.split))
	for i, path := range p.split {
		places[i] = place{rest: path, in: bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: doc}}
	}
	err = p.collect(key, places, func(k []bson.RawValue) { keys = append(keys, k) }, &multikey)
	return keys, multikey, err
}

// A place is how far a path was followed.
type place struct {
	in   bson.RawValue
	rest []string
	done bool
}

// walk follows the path to its end, or to the array that it leads through. An array that the path
// names a position of is passed.
func (p place) walk() place {
	for len(p.rest) > 0 {
		switch p.in.Type {
		case bson.TypeEmbeddedDocument:
			p.in = Lookup(p.in.Value, p.rest[0])
		case bson.TypeArray:
			x := at(p.in.Value, p.rest[0])
			if missing(x) {
				return p
			}
			p.in = x
		default:
			p.in, p.rest = bson.RawValue{}, nil
			return p
		}
		p.rest = p.rest[1:]
	}
	return p
}

func (p *KeyPattern) collect(key []bson.RawValue, places []place, emit func([]bson.RawValue), multikey *bool) error {
	var array bson.RawValue
	var through string
	next := make([]place, len(places))
	for i, at := range places {
		if at.done {
			next[i] = at
			continue
		}
		at = at.walk()
		next[i] = at
		switch {
		case !isArray(at.in):
			key[i], next[i].done = orNull(at.in), true
		case missing(array):
			array, through = at.in, p.Paths[i]
		case &array.Value[0] != &at.in.Value[0]:
			return Errorf(CannotIndexParallelArrays, "cannot index parallel arrays [%s] [%s]", p.Paths[i], through)
		}
	}
	if missing(array) {
		emit(append([]bson.RawValue(nil), key...))
		return nil
	}
	*multikey = true
	all := values(array.Value)
	if len(all) == 0 {
		all = []bson.RawValue{{}}
	}
	for _, x := range all {
		if err := p.collectElement(append([]bson.RawValue(nil), key...), next, x, emit, multikey); err != nil {
			return err
		}
	}
	return nil
}

// collectElement goes on with one element of the array that some paths have led to. It is the zero
// value for an empty array, whose key is undefined where a path ends at it, else null.
func (p *KeyPattern) collectElement(key []bson.RawValue, places []place, x bson.RawValue, emit func([]bson.RawValue),
	multikey *bool) error {
	inside := make([]place, len(places))
	for i, at := range places {
		inside[i] = at
		switch {
		case at.done:
		case len(at.rest) == 0:
			key[i], inside[i].done = x, true
			if missing(x) {
				key[i] = bson.RawValue{Type: bson.TypeUndefined}
			}
		case !isDocument(x):
			key[i], inside[i].done = nullValue(), true
		default:
			inside[i].in = x
		}
	}
	return p.collect(key, inside, emit, multikey)
}

// ParseKeyPattern returns the pattern that a document of fields and directions says.
func ParseKeyPattern(doc bson.Raw) (*KeyPattern, error) {
	if err := Validate(doc); err != nil {
		return nil, err
	}
	p := &KeyPattern{}
	for key, v := range Fields(doc) {
		if !isNumber(v) {
			return nil, Errorf(BadValue, "%s: %s is not known to the model: a direction is 1 or -1", key, v)
		}
		direction := compareNumbers(v, intValue(0))
		if direction == 0 || len(key) == 0 || key[0] == '$' {
			return nil, Errorf(BadValue, "%q: %s is no field with a direction of 1 or -1", key, v)
		}
		p.Paths = append(p.Paths, string(key))
		p.split = append(p.split, splitPath(string(key)))
		p.Directions = append(p.Directions, direction)
	}
	return p, nil
}

// Validate refuses bytes that are no document, or too deep a one. An empty or nil slice stands for
// an empty document.
func Validate(doc bson.Raw) error {
	if len(doc) == 0 {
		return nil
	}
	if err := doc.Validate(); err != nil {
		return Errorf(FailedToParse, "no BSON document: %v", err)
	}
	return shallow(doc, maxDepth)
}

func shallow(doc []byte, depth int) error {
	if depth == 0 {
		return Errorf(15, "a document is nested more than %d deep", maxDepth)
	}
	for _, v := range Fields(doc) {
		if isDocument(v) || isArray(v) {
			if err := shallow(v.Value, depth-1); err != nil {
				return err
			}
		}
	}
	return nil
}

// HasPath tells whether a path leads to anything in a document.
func HasPath(doc bson.Raw, path string) bool {
	return visit(doc, splitPath(path), func(v bson.RawValue) bool { return !missing(v) })
}
