package httpapi

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/nearest"
)

// Param is a query parameter or a request header that a route takes.
type Param struct {
	// Name is the name, that of a header in net/http's spelling. One that ends in "*" stands for all
	// that begin so; their values are the route's to check.
	Name     string
	Doc      string
	Schema   Schema // of the value
	Repeated bool   // it may be given several times
	Default  string // the value if it is not given

	check func(value string) error // the error continues a sentence
}

// Text is a parameter with any text but the empty one that the checks accept.
func Text(name, doc string, checks ...func(value string) *wire.Error) Param {
	return Param{Name: name, Doc: doc, Schema: Schema{"type": "string", "minLength": 1}, check: func(value string) error {
		for _, check := range checks {
			if bad := check(value); bad != nil {
				return errors.New(bad.Msg)
			}
		}
		return nil
	}}
}

// Whole is a parameter with a whole number from low to high, in decimal digits.
func Whole(name, doc string, low, high int64) Param {
	return Param{Name: name, Doc: doc, Schema: Schema{"type": "integer", "minimum": low, "maximum": high}, check: func(value string) error {
		// ParseInt would take a "+" as well.
		if n, err := strconv.ParseInt(value, 10, 64); err != nil || n < low || n > high || value[0] == '+' {
			return fmt.Errorf("%q is not a whole number from %d to %d", value, low, high)
		}
		return nil
	}}
}

// WholeOr is a parameter with such a number, or with the word.
func WholeOr(word, name, doc string, low, high int64) Param {
	p := Whole(name, doc, low, high)
	number := p.check
	p.Schema = Schema{"anyOf": []Schema{p.Schema, {"const": word}}}
	p.check = func(value string) error {
		if value == word {
			return nil
		}
		return number(value)
	}
	return p
}

// OneOf is a parameter with one of the values.
func OneOf(name, doc string, values ...string) Param {
	return Param{Name: name, Doc: doc, Schema: Schema{"type": "string", "enum": values}, check: func(value string) error {
		if !slices.Contains(values, value) {
			return fmt.Errorf("%q is not one of %s", value, strings.Join(values, ", "))
		}
		return nil
	}}
}

// DryRun is the parameter dry_run: nothing is to be changed.
func DryRun() Param {
	return OneOf("dry_run", "1 changes nothing and answers with what would be", "0", "1").Or("0")
}

// Or is the parameter with a default.
func (p Param) Or(value string) Param {
	p.Default = value
	return p
}

// List is the parameter, which may be given several times.
func (p Param) List() Param {
	p.Repeated = true
	return p
}

// covers reports whether the parameter is, or stands for, the name. An asterisk behind a letter is part of the name.
func (p *Param) covers(name string) bool {
	prefix, all := strings.CutSuffix(p.Name, "*")
	all = all && strings.TrimRight(prefix, "-.") != prefix
	return p.Name == name || all && strings.HasPrefix(name, prefix)
}

func find(known []Param, name string) *Param {
	if i := slices.IndexFunc(known, func(p Param) bool { return p.covers(name) }); i >= 0 {
		return &known[i]
	}
	return nil
}

// unknown is the rest of an error's sentence: which words are known instead.
func unknown(word string, known []Param) string {
	var names []string
	for _, p := range known {
		names = append(names, p.Name)
	}
	return nearest.Known(word, names)
}

// Params are the parameters of a request's query, as its route takes them.
type Params struct {
	known  []Param
	values map[string][]string // nil: none is given
}

// parseParams reads a raw query string (the text after the "?"), which must be percent-encoded UTF-8.
// Parameters are separated by "&" alone; "+" is a space. An empty value is refused: it is mostly a
// variable that its sender forgot to set, and treating it as "no filter" would select too much.
func parseParams(rawQuery string, known []Param) (Params, error) {
	p := Params{known: known}
	for pair := range strings.SplitSeq(rawQuery, "&") {
		if pair == "" {
			continue
		}
		rawName, rawValue, _ := strings.Cut(pair, "=")
		name, err := unescape(rawName)
		if err != nil {
			return Params{}, BadParam(rawName, "its name is %v", err)
		}
		value, err := unescape(rawValue)
		if err != nil {
			return Params{}, BadParam(name, "its value is %v", err)
		}
		if err := p.add(name, value); err != nil {
			return Params{}, err
		}
	}
	return p, nil
}

func (p *Params) add(name, value string) error {
	given := p.values[name]
	switch param := find(p.known, name); {
	case param == nil:
		return BadParam(name, "it is not known here%s", unknown(name, p.known))
	case strings.HasSuffix(param.Name, "*"):
	case len(given) > 0 && !param.Repeated:
		return BadParam(name, "it is given twice; give it once")
	case value == "":
		return BadParam(name, "it is given without a value; leave it out or give it one")
	default:
		if err := param.check(value); err != nil {
			return BadParam(name, "%v", err)
		}
	}
	if p.values == nil {
		p.values = make(map[string][]string)
	}
	p.values[name] = append(given, value)
	return nil
}

// unescape decodes one name or value. Its errors continue a sentence.
func unescape(raw string) (string, error) {
	s, err := url.QueryUnescape(raw)
	if err != nil {
		return "", fmt.Errorf("not percent-encoded properly: %v", err)
	}
	if !utf8.ValidString(s) {
		return "", fmt.Errorf("not valid UTF-8 once decoded")
	}
	return s, nil
}

// BadParam is the error of a parameter, for the reason that its reader gives. The name is quoted,
// since it may hold anything.
func BadParam(name, format string, args ...any) error {
	return wire.Errorf(wire.BadRequest, "parameter %q: %s", name, fmt.Sprintf(format, args...))
}

// Has reports whether the parameter is given.
func (p Params) Has(name string) bool { return len(p.List(name)) > 0 }

// Text returns the parameter's value, else its default.
func (p Params) Text(name string) string {
	if given := p.List(name); len(given) > 0 {
		return given[0]
	}
	return find(p.known, name).Default
}

// Whole returns the value of a parameter that is a whole number, else its default, else 0.
func (p Params) Whole(name string) int64 {
	n, _ := strconv.ParseInt(p.Text(name), 10, 64) // "" is 0
	return n
}

// DryRun returns the parameter dry_run.
func (p Params) DryRun() bool { return p.Text("dry_run") == "1" }

// List returns the values of a parameter, in order.
func (p Params) List(name string) []string {
	if find(p.known, name) == nil {
		panic("the route does not describe the parameter " + name)
	}
	return p.values[name]
}

// With returns those that are given of the parameters that a name with a "*" at its end stands for,
// by name.
func (p Params) With(name string) map[string][]string {
	prefix := strings.TrimSuffix(name, "*")
	found := make(map[string][]string)
	for given, values := range p.values {
		if strings.HasPrefix(given, prefix) {
			found[given] = values
		}
	}
	return found
}
