package httpapi

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/nearest"
)

// Schema is a JSON Schema.
type Schema map[string]any

// Ref is the schema that a Description shares under a name.
func Ref(name string) Schema { return Schema{"$ref": "#/components/schemas/" + name} }

// ArrayOf is the schema of an array.
func ArrayOf(items Schema) Schema { return Schema{"type": "array", "items": items} }

// JSONOf is a JSON body with the values of T's type.
func JSONOf[T any]() Content { return JSON(SchemaOf[T]()) }

// JSON is a JSON body.
func JSON(s Schema) Content { return Content{"application/json": s} }

// Lines is a body with a JSON value on each line.
func Lines(s Schema) Content { return Content{"application/x-ndjson": s} }

// ResultsOf is a JSON body with results: of each item of a request, in order, a T or an error.
func ResultsOf[T any]() Content {
	result := Schema{"anyOf": []Schema{SchemaOf[T](), Ref("Error")}}
	return JSON(Schema{"type": "object", "properties": Schema{"results": ArrayOf(result)}, "required": []string{"results"}})
}

// SchemaOf is the schema of the JSON text that encoding/json makes of a T. Members without omitempty
// or omitzero are required. The tag schema names a schema that a Description shares, and stands in
// for that of the field's type.
func SchemaOf[T any]() Schema { return schemaOf(reflect.TypeFor[T]()) }

func schemaOf(t reflect.Type) Schema {
	switch t {
	case reflect.TypeFor[json.RawMessage](), reflect.TypeFor[any]():
		return Schema{}
	case reflect.TypeFor[time.Time]():
		return Schema{"type": "string", "format": "date-time"}
	}
	if t.Kind() != reflect.Pointer && t.Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
		return Schema{"type": "string"}
	}
	switch t.Kind() {
	case reflect.Bool:
		return Schema{"type": "boolean"}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return Schema{"type": "integer"}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return Schema{"type": "integer", "minimum": 0}
	case reflect.Float32, reflect.Float64:
		return Schema{"type": "number"}
	case reflect.String:
		return Schema{"type": "string"}
	case reflect.Slice, reflect.Array:
		return ArrayOf(schemaOf(t.Elem()))
	case reflect.Map:
		return Schema{"type": "object", "additionalProperties": schemaOf(t.Elem())}
	case reflect.Pointer:
		return Schema{"anyOf": []Schema{schemaOf(t.Elem()), {"type": "null"}}}
	case reflect.Struct:
		members, required := Schema{}, []string{}
		addMembers(t, members, &required)
		return Schema{"type": "object", "properties": members, "required": required}
	}
	panic(fmt.Sprintf("httpapi: a %v has no schema", t))
}

// addMembers adds the members that a struct's fields are written as.
func addMembers(t reflect.Type, members Schema, required *[]string) {
	for field := range t.Fields() {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case field.Anonymous && name == "" && field.Type.Kind() == reflect.Pointer:
			addMembers(field.Type.Elem(), members, &[]string{}) // all are left out where it is nil
			continue
		case field.Anonymous && name == "":
			addMembers(field.Type, members, required)
			continue
		case name == "-" || !field.IsExported():
			continue
		case name == "":
			name = field.Name
		}
		of := field.Type
		optional := strings.Contains(options, "omit")
		if optional && of.Kind() == reflect.Pointer {
			of = of.Elem()
		}
		switch shared := field.Tag.Get("schema"); {
		case shared != "" && of.Kind() == reflect.Pointer:
			members[name] = Schema{"anyOf": []Schema{Ref(shared), {"type": "null"}}}
		case shared != "":
			members[name] = Ref(shared)
		default:
			members[name] = schemaOf(of)
		}
		if !optional && !slices.Contains(*required, name) { // it may stand in for one of an embedded struct
			*required = append(*required, name)
		}
	}
}

// ReadObject reads a body that is a JSON object into a struct. It refuses members that the struct
// does not have; null counts as absent.
func ReadObject[T any](body []byte) (to T, bad *wire.Error) {
	schema := SchemaOf[T]()
	if !utf8.Valid(body) {
		return to, wire.Errorf(wire.BadJSON, "the body is not JSON: it is not valid UTF-8")
	}
	if bad := checkMembers(body, schema, "the body"); bad != nil {
		return to, bad
	}
	err := json.Unmarshal(body, &to)
	if err == nil {
		return to, nil
	}
	wrong, is := errors.AsType[*json.UnmarshalTypeError](err)
	if !is {
		return to, wire.Errorf(wire.BadJSON, "the body is not JSON: %v", err)
	}
	name, _, _ := strings.Cut(wrong.Field, ".")
	return to, wire.Errorf(wire.BadRequest, "%s must be %s, and not %s", name, kindOf(memberType(reflect.TypeFor[T](), name)), valueOf(wrong))
}

// valueOf names the JSON value of an error, whose Value is such as "array" or "number -1".
func valueOf(e *json.UnmarshalTypeError) string {
	switch kind, number, _ := strings.Cut(e.Value, " "); {
	case number != "":
		return number
	case kind == "array" || kind == "object":
		return "an " + kind
	case kind == "bool":
		return "true or false"
	default:
		return "a " + kind
	}
}

// checkMembers refuses a member of an object, or of those in it, that its schema does not have.
func checkMembers(text json.RawMessage, schema Schema, what string) *wire.Error {
	if choices, ok := schema["anyOf"].([]Schema); ok { // a pointer
		if string(text) == "null" {
			return nil
		}
		schema = choices[0]
	}
	known, ok := schema["properties"].(Schema)
	if !ok {
		return nil
	}
	names := slices.Sorted(maps.Keys(known))
	var members map[string]json.RawMessage
	switch err := json.Unmarshal(text, &members); {
	case err == nil && members != nil:
	case err == nil || isWrongType(err):
		return wire.Errorf(wire.BadRequest, "%s must be a JSON object with %s", what, strings.Join(names, ", "))
	default:
		return wire.Errorf(wire.BadJSON, "the body is not JSON: %v", err)
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		of, ok := known[name].(Schema)
		if !ok {
			return UnknownMember(name, names)
		}
		if bad := checkMembers(members[name], of, name); bad != nil {
			return bad
		}
	}
	return nil
}

func isWrongType(err error) bool {
	_, is := errors.AsType[*json.UnmarshalTypeError](err)
	return is
}

// UnknownMember refuses a member of a body.
func UnknownMember(name string, known []string) *wire.Error {
	return wire.Errorf(wire.BadRequest, "member %q is not known here%s", name, nearest.Known(name, known))
}

// memberType is the type of the field of a struct that a member is read into.
func memberType(t reflect.Type, name string) reflect.Type {
	for _, field := range reflect.VisibleFields(t) {
		if tag, _, _ := strings.Cut(field.Tag.Get("json"), ","); tag == name {
			return field.Type
		}
	}
	return t
}

// kindOf names the JSON values that can be read into a type.
func kindOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Pointer:
		return kindOf(t.Elem())
	case reflect.Slice:
		return "an array of " + strings.TrimPrefix(kindOf(t.Elem()), "a ") + "s"
	case reflect.Map:
		return "an object of " + strings.TrimPrefix(kindOf(t.Elem()), "a ") + "s"
	case reflect.Struct:
		return "an object"
	}
	return "a whole number"
}
