package rest

import (
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// etag returns the strong entity tag of a policy's version.
func etag(version int64) string { return `"` + strconv.FormatInt(version, 10) + `"` }

// condition is the If-Match and If-None-Match of a request (RFC 9110, sections 13.1.1 and 13.1.2).
type condition struct{ match, noneMatch tags }

// tags are the value of one of the two headers; zero: there is no such header.
type tags struct {
	star bool // "*"
	list []tag
}

// tag is one entity tag, quotes included.
type tag struct {
	opaque string
	weak   bool
}

const entityTag = `(W/)?("[^"\x00-\x20\x7f]*")`

var (
	oneTag = regexp.MustCompile(entityTag)
	// tagList is a list of tags; it may have empty elements.
	tagList = regexp.MustCompile(`^[ \t,]*` + entityTag + `[ \t]*(,[ \t,]*(` + entityTag + `[ \t]*)?)*$`)
)

// readCondition reads both headers. The error names a malformed one: ignoring it would make a
// change that its sender wanted to prevent.
func readCondition(h http.Header) (c condition, err error) {
	if c.match, err = readTags(h, "If-Match"); err != nil {
		return c, err
	}
	c.noneMatch, err = readTags(h, "If-None-Match")
	return c, err
}

func readTags(h http.Header, name string) (t tags, _ error) {
	lines, given := h[name]
	if !given {
		return t, nil
	}
	text := strings.Join(lines, ",")
	t.star = strings.Trim(text, " \t") == "*"
	if !t.star && !tagList.MatchString(text) {
		return t, wire.Errorf(wire.BadRequest, `header %s: %q is neither * nor a list of entity tags such as "3"`, name, text)
	}
	for _, m := range oneTag.FindAllStringSubmatch(text, -1) {
		t.list = append(t.list, tag{opaque: m[2], weak: m[1] != ""})
	}
	return t, nil
}

// permits checks whether a change may be made to a policy whose version is current, 0 if there is
// none. A weak tag never equals a policy's in If-Match, which compares strongly.
func (c condition) permits(current int64) error {
	same := func(t tag) bool { return current > 0 && t.opaque == etag(current) }
	strong := func(t tag) bool { return !t.weak && same(t) }
	switch {
	case c.match.star && current == 0:
		return wire.Errorf(wire.PreconditionFailed, "If-Match: * needs an existing policy; there is none of this name")
	case len(c.match.list) > 0 && !slices.ContainsFunc(c.match.list, strong):
		if current == 0 {
			return wire.Errorf(wire.PreconditionFailed, "If-Match names a version of the policy; there is no policy of this name now")
		}
		return wire.Errorf(wire.PreconditionFailed,
			"If-Match does not have the policy's ETag, which is %s: someone else changed this policy, read it again", etag(current))
	case c.noneMatch.star && current > 0:
		return wire.Errorf(wire.PreconditionFailed,
			"If-None-Match: * requires that the policy does not exist; it exists, with the ETag %s", etag(current))
	case slices.ContainsFunc(c.noneMatch.list, same):
		return wire.Errorf(wire.PreconditionFailed, "If-None-Match has the policy's ETag %s", etag(current))
	}
	return nil
}

// fresh reports whether the reader has the current version of the policy already. If-None-Match
// compares weakly.
func (c condition) fresh(current int64) bool {
	return c.noneMatch.star || slices.ContainsFunc(c.noneMatch.list, func(t tag) bool { return t.opaque == etag(current) })
}
