package codec

import (
	"slices"
	"strings"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// The functions below turn one member of a frame into a Go value. An absent
// member and an explicit null are both "not given".

func stringField(name string, v *value) (string, *wire.Error) {
	return stringInto(nil, name, v)
}

// stringInto is stringField with the string in the arena's memory, where that
// has room for it.
func stringInto(arena *strings.Builder, name string, v *value) (string, *wire.Error) {
	if !v.given() {
		return "", nil
	}
	if v.kind != '"' {
		return "", wire.Errorf(wire.BadRequest, "%s must be a string", name)
	}
	if inner := v.raw[1 : len(v.raw)-1]; !v.escaped && arena != nil && arena.Cap()-arena.Len() >= len(inner) {
		start := arena.Len()
		arena.Write(inner)
		return arena.String()[start:], nil
	}
	text, ok := v.text()
	if !ok {
		return "", wire.Errorf(wire.BadRequest, `%s holds a lone surrogate escape (\ud800 to \udfff without its other half)`, name)
	}
	return text, nil
}

// wholeField returns nil when the member is not given.
func wholeField(name string, v *value, least, most int64) (*int64, *wire.Error) {
	if !v.given() {
		return nil, nil
	}
	n, err := wholeOf(name, v, least, most)
	if err != nil {
		return nil, err
	}
	return &n, nil
}

// wholeOf reads a member that is given.
func wholeOf(name string, v *value, least, most int64) (int64, *wire.Error) {
	if v.kind == '0' {
		if n, ok := wholeNumber(v.raw); ok && n >= least && n <= most {
			return n, nil
		}
	}
	return 0, wire.Errorf(wire.BadRequest, "%s must be a whole number from %d to %d", name, least, most)
}

// intField is wholeField for an int.
func intField(name string, v *value, least, most int) (*int, *wire.Error) {
	n, err := wholeField(name, v, int64(least), int64(most))
	if n == nil {
		return nil, err
	}
	i := int(*n)
	return &i, nil
}

// boolField returns nil when the member is not given.
func boolField(name string, v *value) (*bool, *wire.Error) {
	if !v.given() {
		return nil, nil
	}
	if v.kind != 't' && v.kind != 'f' {
		return nil, wire.Errorf(wire.BadRequest, "%s must be true or false", name)
	}
	is := v.kind == 't'
	return &is, nil
}

// stringsField reads an array of at most `most` strings, each of which check accepts.
func stringsField(name string, v *value, most int, check func(field, s string) *wire.Error) ([]string, *wire.Error) {
	if !v.given() {
		return nil, nil
	}
	if v.kind != '[' {
		return nil, wire.Errorf(wire.BadRequest, "%s must be an array of strings", name)
	}
	var list []string
	var bad *wire.Error
	s := scanner{b: v.raw}
	_ = s.elements(func() *SyntaxError { // scanned before: this finds no fault
		element, err := s.value()
		if err != nil || bad != nil {
			return err
		}
		if element.kind != '"' {
			bad = wire.Errorf(wire.BadRequest, "%s must be an array of strings", name)
			return nil
		}
		if len(list) == most {
			bad = wire.Errorf(wire.BadRequest, "%s has more than %d entries", name, most)
			return nil
		}
		var text string
		if text, bad = stringField(name, &element); bad == nil {
			bad = check(name, text)
			list = append(list, text)
		}
		return nil
	})
	if bad != nil {
		return nil, bad
	}
	return list, nil
}

func checkTag(field, s string) *wire.Error {
	if len(s) > wire.MaxTagBytes {
		return wire.Errorf(wire.BadRequest, "%s holds an entry of %d bytes; at most %d are allowed", field, len(s), wire.MaxTagBytes)
	}
	return nil
}

// headersField reads an object of strings. Of a name given twice the last
// value wins, and null is no value.
func headersField(arena *strings.Builder, name string, v *value, lim wire.Limits) (wire.Headers, *wire.Error) {
	if !v.given() {
		return nil, nil
	}
	if v.kind != '{' {
		return nil, wire.Errorf(wire.BadRequest, "%s must be an object of strings", name)
	}
	var list wire.Headers
	var bad *wire.Error
	s := scanner{b: v.raw}
	_ = s.members(func(key value) *SyntaxError { // scanned before: this finds no fault
		member, err := s.value()
		if err != nil || bad != nil {
			return err
		}
		var h wire.Header
		if h.Name, bad = stringInto(arena, name, &key); bad != nil {
			return nil
		}
		if !member.given() {
			list = slices.DeleteFunc(list, func(x wire.Header) bool { return x.Name == h.Name })
			return nil
		}
		if member.kind != '"' {
			bad = wire.Errorf(wire.BadRequest, "%s must be an object of strings, and that of %s is none", name, shown(h.Name))
			return nil
		}
		if h.Value, bad = stringInto(arena, name, &member); bad != nil {
			return nil
		}
		for i := range list {
			if list[i].Name == h.Name {
				list[i].Value = h.Value
				return nil
			}
		}
		if len(list) == lim.HeaderCount {
			bad = wire.Errorf(wire.PayloadTooLarge, "%s has more than %d entries", name, lim.HeaderCount)
			return nil
		}
		list = append(list, h)
		return nil
	})
	if bad == nil {
		bad = CheckHeaders(list, lim)
	}
	if bad != nil {
		return nil, bad
	}
	return list, nil
}
