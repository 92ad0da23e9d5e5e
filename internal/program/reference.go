package program

import (
	"cmp"
	"encoding"
	"io"
	"reflect"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// A Setting is what the reference of a program says of one of its settings.
type Setting struct {
	// Name is its flag without the dashes before it, and its key in a file.
	Name, Env string
	// Value is what it takes: a placeholder, a type, or the values that are allowed.
	Value string
	// Default is "" where there is none.
	Default string
	// Least is the least value, or "".
	Least string
	Help  string
}

// Reference lists the settings of a program that has no commands, in the order of its help.
func Reference(spec Spec) []Setting {
	nothing := Process{LookupEnv: func(string) (string, bool) { return "", false }, Stdout: io.Discard, Stderr: io.Discard}
	parser := newParser(spec, nothing, new(commonFlags), func(int) {})
	var settings []Setting
	for _, flag := range parser.Model.Flags {
		if !isSetting(flag) {
			continue
		}
		settings = append(settings, Setting{
			Name: flag.Name, Env: envName(flag.Name), Value: valueOf(flag), Help: flag.OrigHelp,
			Default: cmp.Or(ofMachine[flag.Tag.Get("default")], flag.Tag.Get("default")), Least: flag.Tag.Get("min"),
		})
	}
	return settings
}

// valueOf says what a setting takes.
func valueOf(flag *kong.Flag) string {
	kind := flag.Target.Kind()
	switch {
	case flag.Enum != "":
		return strings.Join(flag.EnumSlice(), " | ")
	case flag.Target.Type() == reflect.TypeFor[time.Duration]():
		return "duration"
	case reflect.PointerTo(flag.Target.Type()).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()):
		return flag.PlaceHolder
	case kind == reflect.Bool:
		return "true | false"
	case kind >= reflect.Int && kind <= reflect.Int64 && strings.Contains(flag.Name, "bytes"):
		return "bytes"
	case kind >= reflect.Int && kind <= reflect.Int64:
		return "whole number"
	case flag.IsSlice():
		return "list of " + flag.PlaceHolder
	case flag.IsMap():
		return "list of " + flag.PlaceHolder + ", or a mapping"
	}
	return flag.PlaceHolder
}
