package program

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// settings resolves the flags that the command line does not give: from the environment, else from
// the file.
//
// kong could read both by itself, but then the file would win over the environment: kong puts
// environment values in as defaults, which any resolver overrides.
type settings struct {
	lookupEnv  func(string) (string, bool)
	configFile func(value func(flag string) string) (string, error) // of the Spec
	file       *configFile                                          // nil until the first flag is resolved
}

// settingError is a mistake in a setting. Its message begins with the place of the setting.
type settingError struct {
	where string // "config.yaml:3" or "SLUICE_LISTEN"
	what  string
}

func (e *settingError) Error() string { return e.where + ": " + e.what }

// Validate is part of kong.Resolver. There is nothing left to check: reading the file has refused
// unknown settings.
func (s *settings) Validate(*kong.Application) error { return nil }

// Resolve is part of kong.Resolver: it returns the value of a flag that was not on the command
// line, or nil.
func (s *settings) Resolve(parsed *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	if s.file == nil {
		file, err := s.readFile(parsed)
		if err != nil {
			return nil, err
		}
		s.file = file
	}
	if !isSetting(flag) {
		return nil, nil
	}
	if text := s.env(flag.Name); text != "" {
		value := envValue(flag, text)
		if err := tryDecode(flag, value); err != nil {
			return nil, &settingError{where: envName(flag.Name), what: err.Error()}
		}
		return value, nil
	}
	return s.file.value(flag)
}

func (s *settings) readFile(parsed *kong.Context) (*configFile, error) {
	value := func(flag string) string {
		text := s.env(flag)
		for _, given := range parsed.Path {
			if given.Flag != nil && given.Flag.Name == flag {
				text = parsed.Value(given).String()
			}
		}
		return text
	}
	path := value(configFlag)
	if path == "" && s.configFile != nil {
		var err error
		if path, err = s.configFile(value); err != nil {
			return nil, err
		}
	}
	if path == "" {
		return &configFile{}, nil
	}
	return readConfigFile(path, settingNames(parsed.Model.Node))
}

// env returns the value that the environment has for a flag, or "".
func (s *settings) env(flag string) string {
	value, _ := s.lookupEnv(envName(flag))
	return value
}

// envValue is a variable's value in a form that kong decodes. The elements of a list that has no
// separator on the command line, where each has a flag of its own, are separated by spaces: URLs of
// several servers have commas in them.
func envValue(flag *kong.Flag, text string) any {
	if !flag.IsSlice() || flag.Tag.Sep != -1 {
		return text
	}
	var elements []any
	for element := range strings.FieldsSeq(text) {
		elements = append(elements, element)
	}
	return elements
}

func envName(flag string) string {
	return "SLUICE_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

const configFlag = "config"

// isSetting reports whether a flag configures the program, and does not just print something.
func isSetting(flag *kong.Flag) bool {
	return !slices.Contains([]string{"help", "man", "schema", "version"}, flag.Name)
}

// settingNames lists what a file may set: the flags of all commands, so that one file can serve
// them all.
func settingNames(node *kong.Node) []string {
	var names []string
	for _, flag := range node.Flags {
		if isSetting(flag) && flag.Name != configFlag {
			names = append(names, flag.Name)
		}
	}
	for _, child := range node.Children {
		names = append(names, settingNames(child)...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// tryDecode tells whether kong will take value for flag, so that the error can name the place it
// comes from.
func tryDecode(flag *kong.Flag, value any) error {
	target := reflect.New(flag.Target.Type()).Elem()
	if target.Kind() == reflect.Pointer {
		target.Set(reflect.New(target.Type().Elem()))
	}
	scan := kong.Scan().PushTyped(value, kong.FlagValueToken)
	if err := flag.Mapper.Decode(&kong.DecodeContext{Value: flag.Value, Scan: scan}, target); err != nil {
		return fmt.Errorf("%s: %w", flag.Name, err)
	}
	if allowed := flag.EnumSlice(); flag.Enum != "" && target.Kind() == reflect.String &&
		!slices.Contains(allowed, target.String()) {
		return fmt.Errorf("%s: must be one of %s, not %q", flag.Name, strings.Join(allowed, ", "), target.String())
	}
	return nil
}

// checkMinimums reports every number or duration that is below the minimum in its tag.
func checkMinimums(command *kong.Context) error {
	var errs []error
	for _, flag := range command.Flags() {
		if !flag.Tag.Has("min") {
			continue
		}
		least := reflect.New(flag.Target.Type()).Elem()
		scan := kong.Scan().PushTyped(flag.Tag.Get("min"), kong.FlagValueToken)
		if err := flag.Mapper.Decode(&kong.DecodeContext{Value: flag.Value, Scan: scan}, least); err != nil {
			panic(fmt.Sprintf("%s: unusable minimum: %v", flag.Name, err))
		}
		if flag.Target.Int() < least.Int() {
			errs = append(errs, fmt.Errorf("%s: must be at least %v, not %v", flag.Name, least.Interface(), flag.Target.Interface()))
		}
	}
	return errors.Join(errs...)
}
