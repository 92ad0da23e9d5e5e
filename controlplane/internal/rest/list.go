package rest

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-bus/sluice/internal/httpapi"
)

const (
	defaultList = 100
	maxList     = 1000
)

// list is how a list is sorted and cut into pages.
type list[T any] struct {
	// name is unique; the parameter prefix selects by it.
	name func(*T) string
	// sorts are what the list can be sorted by. The first is the default.
	sorts []sorting[T]
}

// sorting is one field that a list can be sorted by: its texts are in the order of its values.
type sorting[T any] struct {
	field string
	text  func(*T) string
}

// params are the parameters of the list.
func (l list[T]) params() []httpapi.Param {
	var sorts []string
	for _, s := range l.sorts {
		sorts = append(sorts, s.field, "-"+s.field)
	}
	return []httpapi.Param{
		httpapi.Whole("limit", "most elements of the page", 1, maxList).Or(strconv.Itoa(defaultList)),
		httpapi.Text("cursor", "next of the page before"),
		httpapi.Text("prefix", "only names that begin so"),
		httpapi.OneOf("sort", "a field, or - and a field for the largest first", sorts...).Or(l.sorts[0].field),
	}
}

// place is the place of an element in a sorted list.
type place struct {
	Sort string `json:"s"`
	Text string `json:"t"`
	Name string `json:"n"`
}

func (p place) compare(q place) int {
	byField := cmp.Compare(p.Text, q.Text)
	if strings.HasPrefix(p.Sort, "-") {
		byField = -byField
	}
	return cmp.Or(byField, cmp.Compare(p.Name, q.Name))
}

// page returns the requested page of a list, and the cursor of the next one; "": there is none.
func (l list[T]) page(r *request, all []T) (page []T, next string, _ error) {
	sort := r.Text("sort")
	by := l.sorts[slices.IndexFunc(l.sorts, func(s sorting[T]) bool { return s.field == strings.TrimPrefix(sort, "-") })]
	var after *place
	if text := r.Text("cursor"); text != "" {
		raw, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil || json.Unmarshal(raw, &after) != nil || after == nil || after.Sort != sort {
			return nil, "", httpapi.BadParam("cursor", "it is not one that this list gave, sorted by %s", sort)
		}
	}
	type element struct {
		place
		of *T
	}
	var rest []element
	for i := range all {
		e := element{place{sort, by.text(&all[i]), l.name(&all[i])}, &all[i]}
		if strings.HasPrefix(e.Name, r.Text("prefix")) && (after == nil || e.compare(*after) > 0) {
			rest = append(rest, e)
		}
	}
	slices.SortFunc(rest, func(a, b element) int { return a.compare(b.place) })
	limit := int(r.Whole("limit"))
	page = make([]T, 0, min(limit, len(rest))) // [] rather than null
	for _, e := range rest[:min(limit, len(rest))] {
		page = append(page, *e.of)
	}
	if len(rest) > limit {
		cursor, err := json.Marshal(rest[limit-1].place)
		if err != nil {
			return nil, "", err
		}
		next = base64.RawURLEncoding.EncodeToString(cursor)
	}
	return page, next, nil
}
