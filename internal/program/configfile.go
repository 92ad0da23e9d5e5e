package program

import (
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"

	"github.com/sluice-bus/sluice/sdk/wire/nearest"
)

// configFile is a YAML file of settings: one mapping from flag names to values.
type configFile struct {
	path   string
	values map[string]fileValue
}

// fileValue is one value of the file and the line of its name.
type fileValue struct {
	line int
	node *yaml.Node
}

// readConfigFile reads the file at path, whose keys must be among known. Errors begin with path and
// line.
func readConfigFile(path string, known []string) (*configFile, error) {
	opened, err := os.Open(path)
	if err != nil {
		return nil, &settingError{where: "--config", what: err.Error()}
	}
	defer opened.Close()

	file := &configFile{path: path, values: map[string]fileValue{}}
	decoder := yaml.NewDecoder(opened)
	var document yaml.Node
	if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
		return file, nil // empty, or nothing but comments
	} else if err != nil {
		return nil, file.syntaxError(err)
	}
	var second yaml.Node
	if err := decoder.Decode(&second); err == nil {
		return nil, file.errorf(second.Line, "a second document; all settings belong in the first")
	} else if !errors.Is(err, io.EOF) {
		return nil, file.syntaxError(err)
	}
	if err := file.collect(document.Content[0], known); err != nil {
		return nil, err
	}
	return file, nil
}

func (f *configFile) collect(root *yaml.Node, known []string) error {
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return nil
	}
	if root.Kind != yaml.MappingNode {
		return f.errorf(root.Line, "settings are lines of the form \"name: value\"")
	}
	for pair := range slices.Chunk(root.Content, 2) {
		key, value := pair[0], pair[1]
		if value.Kind == yaml.AliasNode {
			value = value.Alias
		}
		if key.Kind != yaml.ScalarNode || !slices.Contains(known, key.Value) {
			return f.errorf(key.Line, "unknown setting %q%s", key.Value, nearest.Hint(key.Value, known))
		}
		if first, ok := f.values[key.Value]; ok {
			return f.errorf(key.Line, "%s is set already in line %d", key.Value, first.line)
		}
		f.values[key.Value] = fileValue{line: key.Line, node: value}
	}
	return nil
}

// value returns what the file has for flag in a form that kong decodes, or nil.
func (f *configFile) value(flag *kong.Flag) (any, error) {
	found, ok := f.values[flag.Name]
	if !ok {
		return nil, nil
	}
	value, err := kongValue(flag, found.node)
	if err != nil {
		return nil, f.errorf(found.line, "%s: %v", flag.Name, err)
	}
	if err := tryDecode(flag, value); err != nil {
		return nil, f.errorf(found.line, "%v", err)
	}
	return value, nil
}

// kongValue converts a YAML value: scalars to their text as written, so that a number keeps its
// digits and a list or map of text its exact elements.
func kongValue(flag *kong.Flag, node *yaml.Node) (any, error) {
	switch {
	case node.Kind == yaml.SequenceNode && flag.IsSlice():
		texts := make([]string, len(node.Content))
		for i, element := range node.Content {
			text, err := scalarText(element)
			if err != nil {
				return nil, fmt.Errorf("element %d: %w", i+1, err)
			}
			texts[i] = text
		}
		if flag.Target.Type().Elem().Kind() != reflect.String {
			return kong.JoinEscaped(texts, flag.Tag.Sep), nil
		}
		// The separator has no meaning within an element of a list.
		elements := make([]any, len(texts))
		for i, text := range texts {
			elements[i] = text
		}
		return elements, nil
	case node.Kind == yaml.MappingNode && flag.IsMap():
		members := make(map[string]any, len(node.Content)/2)
		for pair := range slices.Chunk(node.Content, 2) {
			text, err := scalarText(pair[1])
			if err != nil {
				return nil, fmt.Errorf("%s: %w", pair[0].Value, err)
			}
			members[pair[0].Value] = text
		}
		return members, nil
	case node.Kind == yaml.SequenceNode:
		return nil, errors.New("expected one value, not a list")
	case node.Kind == yaml.MappingNode:
		return nil, errors.New("expected a value, not a mapping")
	}
	text, err := scalarText(node)
	if err == nil && node.Tag == "!!bool" && flag.Target.Kind() == reflect.String {
		err = fmt.Errorf("expected text, not the truth value %s (quote it if that is meant)", text)
	}
	return text, err
}

func scalarText(node *yaml.Node) (string, error) {
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	if node.Kind != yaml.ScalarNode {
		return "", errors.New("expected a plain value")
	}
	if node.Tag == "!!null" {
		return "", errors.New(`has no value ("" is the empty text)`)
	}
	return node.Value, nil
}

func (f *configFile) errorf(line int, format string, args ...any) error {
	return &settingError{where: fmt.Sprintf("%s:%d", f.path, line), what: fmt.Sprintf(format, args...)}
}

var yamlLine = regexp.MustCompile(`^yaml: line (\d+): `)

// syntaxError puts the line that the YAML library's message begins with where our other errors have
// it.
func (f *configFile) syntaxError(err error) error {
	where, what := f.path, err.Error()
	if match := yamlLine.FindStringSubmatch(what); match != nil {
		where, what = f.path+":"+match[1], what[len(match[0]):]
	}
	return &settingError{where: where, what: "not valid YAML: " + strings.TrimPrefix(what, "yaml: ")}
}
