// Package schema validates payloads against a JSON Schema. It wraps the library for that: it bounds
// the cost of a schema, refuses references to other documents, and describes violations in
// sentences. It knows neither policies nor events.
//
// # Supported schemas
//
// Draft 2020-12, and the drafts 4, 6, 7 and 2019-09 if "$schema" names one. A "$ref" may refer to
// the schema itself and to the drafts' own meta-schemas, and nowhere else. "format",
// "contentEncoding" and "contentMediaType" are annotations, and assert nothing, in every draft.
// Patterns are Go's regular expressions: they take time in proportion to the text, and know no
// look-around and no back-references.
package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"regexp/syntax"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Bounds of a schema.
const (
	MaxBytes        = 256 << 10 // of its text
	MaxSubschemas   = 5000      // objects and booleans in it
	MaxPatternBytes = 1024      // of one regular expression
	// maxPatternSize is how many instructions a regular expression may have: a short one such as
	// "x{1000}" may have many, and matching takes as many steps a character.
	maxPatternSize = maxTextSteps
)

// Schema is a compiled schema. It is immutable, and safe for concurrent use.
type Schema struct {
	compiled *jsonschema.Schema
	cost     steps
}

// base is where a schema is, for its references.
const base = "sluice:///schema"

// Compile compiles a schema of its JSON text. The error is a sentence about the text.
func Compile(text string) (*Schema, error) {
	if len(text) > MaxBytes {
		return nil, fmt.Errorf("has %d bytes; at most %d are allowed", len(text), MaxBytes)
	}
	doc, err := decode([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("is not JSON: %w", err)
	}
	if n := subschemas(doc); n > MaxSubschemas {
		return nil, fmt.Errorf("holds %d objects and booleans; at most %d are allowed", n, MaxSubschemas)
	}
	if pointer, number := hugeNumber(doc, nil); number != "" {
		return nil, fmt.Errorf("at %q is the number %s, which is too large or too small", pointer, shown(number))
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(nothingElse{})
	c.UseRegexpEngine(compilePattern)
	for _, name := range assertedFormats {
		c.RegisterFormat(&jsonschema.Format{Name: name, Validate: func(any) error { return nil }})
	}
	if err := c.AddResource(base, doc); err != nil {
		return nil, sentence(err)
	}
	compiled, err := c.Compile(base)
	if err != nil {
		return nil, sentence(err)
	}
	cost, err := costOf(compiled)
	if err != nil {
		return nil, err
	}
	return &Schema{compiled, cost}, nil
}

// assertedFormats are the formats that the library would check in drafts up to 7, which leave that
// open.
var assertedFormats = []string{
	"json-pointer", "relative-json-pointer", "uuid", "duration", "period", "ipv4", "ipv6", "hostname", "email",
	"date", "time", "date-time", "uri", "iri", "uri-reference", "iri-reference", "uri-template", "semver",
}

// nothingElse refuses every reference of a schema to another document.
type nothingElse struct{}

var errElsewhere = errors.New("a schema must be self-contained: $ref and $schema may not lead elsewhere")

func (nothingElse) Load(string) (any, error) { return nil, errElsewhere }

// pattern is a regular expression of a known size.
type pattern struct {
	*regexp.Regexp
	instructions int
}

// compilePattern makes a regular expression that is not too costly to match.
func compilePattern(text string) (jsonschema.Regexp, error) {
	if len(text) > MaxPatternBytes {
		return nil, fmt.Errorf("it has %d bytes; at most %d are allowed", len(text), MaxPatternBytes)
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, err
	}
	prog, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return nil, err
	}
	if n := len(prog.Inst); n > maxPatternSize {
		return nil, fmt.Errorf("it repeats too much: %d steps a character; at most %d are allowed", n, maxPatternSize)
	}
	re, err := regexp.Compile(text)
	return pattern{re, len(prog.Inst)}, err
}

// sentence describes a mistake in a schema, without the URL by which the library knows it.
func sentence(err error) error {
	away := ""
	switch err := err.(type) {
	case *jsonschema.SchemaValidationError:
		if why, ok := errors.AsType[*jsonschema.ValidationError](err.Err); ok {
			v := violationOf(why)
			return fmt.Errorf("is no JSON Schema: at %q, %s", v.Pointer, v.Msg)
		}
	case *jsonschema.LoadURLError:
		away = err.URL
	case *jsonschema.InvalidMetaSchemaURLError:
		if errors.Is(err.Err, errElsewhere) {
			away = err.URL
		}
	case *jsonschema.InvalidRegexError:
		return fmt.Errorf("at %q has the pattern %s: %w", strings.TrimPrefix(err.URL, base+"#"), shown(err.Regex), err.Err)
	}
	if away != "" {
		return fmt.Errorf("refers to %s: %w", shown(strings.TrimPrefix(away, "sluice:///")), errElsewhere)
	}
	return fmt.Errorf("is no JSON Schema: %s", strings.ReplaceAll(err.Error(), base, ""))
}

// decode reads one JSON value, its numbers as they are written.
func decode(text []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more text after the value")
	}
	return v, nil
}

// subschemas counts the values that may be a schema of their own.
func subschemas(v any) (n int) {
	walk(v, func(v any) {
		switch v.(type) {
		case bool, map[string]any:
			n++
		}
	})
	return n
}
