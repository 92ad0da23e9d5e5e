package httpapi

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// Params are the parameters of a query string. Unknown parameters are ignored, so that a newer
// client may send them. Errors are *wire.Error with bad_request and name the parameter.
type Params struct {
	values map[string]string
	lists  map[string][]string
}

// ParseParams reads a raw query string (the text after the "?"), which must be percent-encoded
// UTF-8. It may give a parameter once, and a list several times. Parameters are separated by "&"
// alone; "+" is a space.
func ParseParams(rawQuery string, lists ...string) (Params, error) {
	p := Params{values: make(map[string]string), lists: make(map[string][]string)}
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
		if slices.Contains(lists, name) {
			if value == "" {
				return Params{}, BadParam(name, "%s", noValue)
			}
			p.lists[name] = append(p.lists[name], value)
			continue
		}
		if _, twice := p.values[name]; twice {
			return Params{}, BadParam(name, "it is given twice; give it once")
		}
		p.values[name] = value
	}
	return p, nil
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

// Has reports whether the parameter is given, even if its value is empty.
func (p Params) Has(name string) bool {
	_, ok := p.values[name]
	return ok
}

// Text returns the parameter's value, or "" if it is not given. A given but empty parameter is
// refused: it is mostly a variable that its sender forgot to set, and treating it as "no filter"
// would return too much.
func (p Params) Text(name string) (string, error) {
	v, given := p.values[name]
	if given && v == "" {
		return "", BadParam(name, "%s", noValue)
	}
	return v, nil
}

const noValue = "it is given without a value; leave it out or give it one"

// List returns the values of a parameter that is a list, in order.
func (p Params) List(name string) []string { return p.lists[name] }

// Whole returns the parameter as a whole number from low to high, in decimal digits; def if it is
// not given.
func (p Params) Whole(name string, def, low, high int64) (int64, error) {
	v, given := p.values[name]
	if !given {
		return def, nil
	}
	// ParseInt would take a "+" as well.
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < low || n > high || v[0] == '+' {
		return 0, BadParam(name, "%q is not a whole number from %d to %d", v, low, high)
	}
	return n, nil
}

// Choice returns the parameter as one of the choices; the first one if it is not given.
func (p Params) Choice(name string, choices ...string) (string, error) {
	v, given := p.values[name]
	switch {
	case !given:
		return choices[0], nil
	case slices.Contains(choices, v):
		return v, nil
	}
	return "", BadParam(name, "%q is not one of %s", v, strings.Join(choices, ", "))
}

// DryRun returns the parameter dry_run: nothing is to be changed.
func (p Params) DryRun() (bool, error) {
	n, err := p.Choice("dry_run", "0", "1")
	return n == "1", err
}
