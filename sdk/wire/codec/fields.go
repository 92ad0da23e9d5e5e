package codec

import (
	"bytes"
	"slices"
	"strings"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// memberReader turns members of a frame into Go values, and keeps the first error, after which no
// value counts. An absent member and an explicit null are both "not given".
type memberReader struct {
	arena strings.Builder // the memory of strings, where it has room for them
	err   *wire.Error
}

// check keeps the error, unless there was one before.
func (r *memberReader) check(err *wire.Error) {
	if r.err == nil {
		r.err = err
	}
}

// fail refuses a member.
func (r *memberReader) fail(format string, args ...any) {
	r.check(wire.Errorf(wire.BadRequest, format, args...))
}

// text reads a string; absent is "".
func (r *memberReader) text(name string, v *value) string {
	if r.err != nil || !v.given() {
		return ""
	}
	if v.kind != '"' {
		r.fail("%s must be a string", name)
		return ""
	}
	if inner := v.raw[1 : len(v.raw)-1]; !v.escaped && r.arena.Cap()-r.arena.Len() >= len(inner) {
		start := r.arena.Len()
		r.arena.Write(inner)
		return r.arena.String()[start:]
	}
	text, ok := v.text()
	if !ok {
		r.fail(`%s holds a lone surrogate escape (\ud800 to \udfff without its other half)`, name)
	}
	return text
}

// nonEmpty reads a text that is not empty where it is given: an empty one is a variable that nobody set.
func (r *memberReader) nonEmpty(name string, v *value) string {
	text := r.text(name, v)
	if v.given() && text == "" {
		r.fail("%s is empty; leave it out or give it a value", name)
	}
	return text
}

// optionalText tells an empty string from none, which is nil.
func (r *memberReader) optionalText(name string, v *value) *string {
	if !v.given() {
		return nil
	}
	text := r.text(name, v)
	return &text
}

// id reads an event's id where one is given.
func (r *memberReader) id(name string, v *value) (id string) {
	if v.given() {
		id = r.text(name, v)
		r.check(checkID(name, id))
	}
	return id
}

// number reads a whole number; absent is 0.
func (r *memberReader) number(name string, v *value, least, most int64) int64 {
	if r.err != nil || !v.given() {
		return 0
	}
	if v.kind == '0' {
		if n, ok := wholeNumber(v.raw); ok && n >= least && n <= most {
			return n
		}
	}
	r.fail("%s must be a whole number from %d to %d", name, least, most)
	return 0
}

// optionalNumber tells 0 from no number, which is nil.
func (r *memberReader) optionalNumber(name string, v *value, least, most int64) *int64 {
	if !v.given() {
		return nil
	}
	n := r.number(name, v, least, most)
	return &n
}

// count reads a number from 1 on; absent is nil.
func (r *memberReader) count(name string, v *value, most int64) *int {
	if !v.given() {
		return nil
	}
	n := int(r.number(name, v, 1, most))
	return &n
}

// flag reads a boolean; absent is false.
func (r *memberReader) flag(name string, v *value) bool {
	if v.given() && v.kind != 't' && v.kind != 'f' {
		r.fail("%s must be true or false", name)
	}
	return v.kind == 't'
}

// texts reads an array of at most `most` strings, each of which check accepts.
func (r *memberReader) texts(name string, v *value, most int, check func(field, s string) *wire.Error) (list []string) {
	if r.err != nil || !v.given() {
		return nil
	}
	if v.kind != '[' {
		r.fail("%s must be an array of strings", name)
		return nil
	}
	if quoted := bytes.Count(v.raw, []byte{'"'}) / 2; quoted > 0 { // an escaped quote counts, too
		list = make([]string, 0, min(quoted, most))
	}
	s := scanner{b: v.raw}
	_ = s.elements(func() *SyntaxError { // scanned before: this finds no fault
		element, err := s.value()
		switch {
		case err != nil || r.err != nil:
		case element.kind != '"':
			r.fail("%s must be an array of strings", name)
		case len(list) == most:
			r.fail("%s has more than %d entries", name, most)
		default:
			text := r.text(name, &element)
			r.check(check(name, text))
			list = append(list, text)
		}
		return err
	})
	return list
}

func checkTag(field, s string) *wire.Error {
	if len(s) > wire.MaxTagBytes {
		return wire.Errorf(wire.BadRequest, "%s holds an entry of %d bytes; at most %d are allowed", field, len(s), wire.MaxTagBytes)
	}
	return nil
}

// checkedHeaders reads headers that are not a publisher's.
func (r *memberReader) checkedHeaders(name string, v *value, lim wire.Limits) wire.Headers {
	list := r.headers(name, v, lim)
	if r.err == nil {
		r.err = CheckHeaders(list, lim)
	}
	return list
}

// headers reads an object of strings. If a name is given twice the last value wins; null is no
// value.
func (r *memberReader) headers(name string, v *value, lim wire.Limits) (list wire.Headers) {
	if r.err != nil || !v.given() {
		return nil
	}
	if v.kind != '{' {
		r.fail("%s must be an object of strings", name)
		return nil
	}
	s := scanner{b: v.raw}
	_ = s.elements(func() *SyntaxError { // scanned before: this finds no fault
		key, err := s.name()
		if err != nil {
			return err
		}
		member, err := s.value()
		if err != nil || r.err != nil {
			return err
		}
		h := wire.Header{Name: r.text(name, &key)}
		at := slices.IndexFunc(list, func(x wire.Header) bool { return x.Name == h.Name })
		switch {
		case !member.given() && at >= 0:
			list = slices.Delete(list, at, at+1)
		case !member.given():
		case member.kind != '"':
			r.fail("%s must be an object of strings, and that of %s is none", name, shown(h.Name))
		case at >= 0:
			list[at].Value = r.text(name, &member)
		case len(list)-notCounted == lim.HeaderCount:
			r.check(wire.Errorf(wire.PayloadTooLarge, "%s has more than %d entries (--limits headers)", name, lim.HeaderCount))
		default:
			h.Value = r.text(name, &member)
			list = append(list, h)
		}
		return nil
	})
	return list
}
