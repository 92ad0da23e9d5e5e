package program

import (
	"encoding"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/sluice-bus/sluice/internal/setting"
)

// schemaFlag prints a schema and ends the program.
type schemaFlag string

// BeforeReset is called by kong if the flag is given.
func (schemaFlag) BeforeReset(parsed *kong.Context, flag *kong.Path, spec Spec) error {
	of := fmt.Sprint(parsed.FlagValue(flag.Flag))
	var schema map[string]any
	switch build := spec.Schemas[of]; {
	case build != nil:
		schema = build()
	case of == configFlag:
		schema = configSchema(parsed.Model.Node)
	default:
		names := append(slices.Sorted(maps.Keys(spec.Schemas)), configFlag)
		return fmt.Errorf("--schema: must be one of %s, not %q", strings.Join(names, ", "), of)
	}
	text, err := json.MarshalIndent(schema, "", "  ")
	if err != nil {
		return err
	}
	fmt.Fprintln(parsed.Stdout, string(text))
	parsed.Exit(StatusOK)
	return nil
}

// configSchema is the JSON Schema of the file given with --config.
func configSchema(program *kong.Node) map[string]any {
	properties := map[string]any{}
	addSettings(program, properties)
	return map[string]any{
		"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Settings of " + program.Name,
		"type": []string{"object", "null"}, "properties": properties, "additionalProperties": false,
	}
}

func addSettings(node *kong.Node, to map[string]any) {
	for _, flag := range node.Flags {
		if isSetting(flag) && flag.Name != configFlag {
			to[flag.Name] = settingSchema(flag)
		}
	}
	for _, child := range node.Children {
		addSettings(child, to)
	}
}

func settingSchema(flag *kong.Flag) map[string]any {
	schema := typeSchema(flag.Target.Type())
	schema["description"] = flag.OrigHelp
	if flag.Enum != "" {
		schema["enum"] = flag.EnumSlice()
		delete(schema, "type")
	}
	if kind := flag.Target.Kind(); kind == reflect.Int && flag.Tag.Has("min") {
		schema["minimum"] = json.RawMessage(flag.Tag.Get("min"))
	}
	switch value := flag.Tag.Get("default"); {
	case value == "" || strings.Contains(value, "${"): // there is none, or it is the machine's
	case schema["type"] == "integer" || schema["type"] == "number" || schema["type"] == "boolean":
		schema["default"] = json.RawMessage(value)
	default:
		schema["default"] = value
	}
	return schema
}

// typeSchema is the schema of what a file may have for a setting of a type. Text may be written
// without quotation marks, also if that makes it a number.
func typeSchema(t reflect.Type) map[string]any {
	kind := t.Kind()
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return setting.DurationSchema()
	case reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()), kind == reflect.String:
		return map[string]any{"type": []string{"string", "number"}}
	case kind == reflect.Bool:
		return map[string]any{"type": "boolean"}
	case kind == reflect.Float64:
		return map[string]any{"type": "number"}
	case kind == reflect.Slice:
		return map[string]any{"type": []string{"array", "string", "number"}, "items": typeSchema(t.Elem())}
	case kind == reflect.Map:
		return map[string]any{"type": []string{"object", "string"}, "additionalProperties": typeSchema(t.Elem())}
	case kind == reflect.Pointer:
		return typeSchema(t.Elem())
	}
	return map[string]any{"type": "integer"}
}
