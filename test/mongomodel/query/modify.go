package query

import (
	"strconv"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// maxPadding is how many elements an array may grow by when a position beyond its end is set, as on
// the server.
const maxPadding = 1_500_000

// A change makes a field's new value of its old one. The zero value stands for a field that is not
// there, before or after.
type change func(old bson.RawValue) (bson.RawValue, error)

// modify returns the document with the field at path changed. With create, modify makes the
// documents on the path that are missing; without, it changes nothing if one is missing.
func modify(doc bson.Raw, path []string, create bool, f change) (bson.Raw, error) {
	v, err := modifyIn("", bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: doc}, path, create, f)
	return v.Value, err
}

func modifyIn(name string, container bson.RawValue, path []string, create bool, f change) (bson.RawValue, error) {
	key := path[0]
	_, isPosition := position(key)
	switch {
	case isDocument(container), isArray(container) && isPosition:
	case create:
		return container, Errorf(PathNotViable, "Cannot create field '%s' in element {%s: %s}", key, name, container)
	default:
		return container, nil
	}
	old := Lookup(container.Value, key)
	v, err := old, error(nil)
	switch {
	case len(path) == 1:
		v, err = f(old)
	case !missing(old):
		v, err = modifyIn(key, old, path[1:], create, f)
	case create:
		v, err = f(old)
		v = nested(path[1:], v)
	}
	if err != nil || same(old, v) {
		return container, err
	}
	if isArray(container) {
		return setElement(container, key, v)
	}
	return setField(container, key, old, v), nil
}

// nested puts a value into the documents that the path names.
func nested(path []string, v bson.RawValue) bson.RawValue {
	for i := len(path) - 1; i >= 0 && !missing(v); i-- {
		v = documentOf([]element{{path[i], v}})
	}
	return v
}

func setField(container bson.RawValue, key string, old, v bson.RawValue) bson.RawValue {
	b := newBuilder(len(container.Value) + len(v.Value) + len(key))
	for k, x := range Fields(container.Value) {
		if string(k) == key {
			x = v
		}
		b.add(string(k), x)
	}
	if missing(old) {
		b.add(key, v)
	}
	return bson.RawValue{Type: container.Type, Value: b.doc()}
}

// setElement sets an array's element. A removed one leaves null, and an array that grows is filled
// with null.
func setElement(container bson.RawValue, key string, v bson.RawValue) (bson.RawValue, error) {
	all := values(container.Value)
	at, err := strconv.Atoi(key)
	if err != nil || at-len(all) > maxPadding {
		return container, Errorf(BadValue, "can't backfill more than %d elements in an array", maxPadding)
	}
	if at >= len(all) && missing(v) {
		return container, nil
	}
	for len(all) <= at {
		all = append(all, nullValue())
	}
	all[at] = orNull(v)
	return arrayOf(all), nil
}
