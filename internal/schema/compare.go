package schema

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// A comparison decides whether the reader's schema accepts every document that the writer's schema
// accepts. Its yes is right. It says no, with a reason, if there is a document that the reader
// refuses, and also if it cannot decide: pattern against pattern, for example. The facts about a
// value are the schemas that it fits, and the schemas that it does not fit. Each of the reader's
// keywords has to follow from the facts. If one does not, the facts are divided into cases (the
// subschemas of the writer's anyOf and oneOf, then the types), and the keyword has to follow from
// each case.

// Bounds of a comparison.
const (
	// maxCompared is how many steps the comparisons of one budget take at most, each about as long
	// as one of a check: a second or two.
	maxCompared = 4 * maxSteps
	// lookEvery is after how many steps a comparison looks whether it may go on: some ms.
	lookEvery = maxSteps / 256
	// maxReasons is how many reasons one comparison gives.
	maxReasons = 20
	// factSteps are the steps of looking at one of the facts.
	factSteps = 32
	// maxCases is how many ways there may be in which patternProperties may concern a name; past
	// it, less is known of the name.
	maxCases = 16
)

// Budget bounds the steps of several comparisons. It is not for concurrent use.
type Budget struct {
	ctx  context.Context
	left int
}

// NewBudget is enough for many comparisons of schemas as people write them. Nothing is left of it once ctx ends: a comparison ends
// then, and what it returns means nothing.
func NewBudget(ctx context.Context) *Budget { return &Budget{ctx, maxCompared} }

// Spent reports whether nothing is left: a further comparison decides nothing.
func (b *Budget) Spent() bool { return b.left <= 0 }

// Breaks says why a reader with one schema may refuse what a writer with another one may write;
// none: it refuses nothing of that. The names are what the reasons call the two, such as "the new
// schema" and "version 3".
func (b *Budget) Breaks(writer, reader *Schema, writerName, readerName string) []string {
	c := &comparer{
		ctx: b.ctx, left: b.left, cost: steps{max(writer.cost.value, reader.cost.value), max(writer.cost.text, reader.cost.text)},
		writer: writerName, reader: readerName,
		digests: map[*jsonschema.Schema]digest{}, typeOnly: map[*jsonschema.Schema]bool{},
	}
	reasons := c.within(c.factsOf(writer.compiled), reader.compiled, "")
	if b.left = c.left; c.left <= 0 {
		return []string{fmt.Sprintf("%s and %s are too large to be compared, which counts as incompatible: have fewer "+
			"subschemas and references in them", writerName, readerName)}
	}
	slices.Sort(reasons)
	reasons = slices.Compact(reasons)
	if more := len(reasons) - maxReasons; more > 0 {
		reasons = append(reasons[:maxReasons], fmt.Sprintf("and %d more", more))
	}
	return reasons
}

type comparer struct {
	ctx            context.Context
	left           int   // steps; at 0 everything is undecided
	cost           steps // of the dearer schema on one value
	writer, reader string
	digests        map[*jsonschema.Schema]digest
	typeOnly       map[*jsonschema.Schema]bool
}

// spend takes steps, and reports whether enough were left.
func (c *comparer) spend(n int) bool {
	if before := c.left / lookEvery; before != (c.left-n)/lookEvery && c.ctx.Err() != nil {
		c.left = 0
	}
	c.left -= n
	return c.left > 0
}

// accepts reports whether a value fits a subschema.
func (c *comparer) accepts(s *jsonschema.Schema, v any) bool {
	text, _ := v.(string)
	return c.spend(factSteps+sizeOf(v)*c.cost.value+len(text)*c.cost.text/textShare) && s.Validate(v) == nil
}

// says is a reason: R and W stand for the reader's and the writer's names.
func (c *comparer) says(at, format string, args ...any) []string {
	reason := strings.NewReplacer("{R}", c.reader, "{W}", c.writer).Replace(fmt.Sprintf(format, args...))
	if at != "" {
		reason = fmt.Sprintf("at %q, %s", at, reason)
	}
	return []string{reason}
}

const undecided = "; where it cannot be decided, that counts as incompatible"

// within returns why the reader may refuse a value of these facts; nil: it does not.
func (c *comparer) within(w facts, r *jsonschema.Schema, at string) []string {
	if !c.spend(factSteps * (1 + len(w.fits))) {
		return c.says(at, "the comparison takes too many steps")
	}
	if isTrue(r) || c.empty(w) {
		return nil
	}
	for _, s := range w.fits {
		if c.same(s, r) {
			return nil
		}
	}
	if values, finite := c.values(w); finite {
		return c.outside(values, r, at)
	}
	bad := c.direct(w, r, at)
	if bad == nil {
		return nil
	}
	cases := c.alternatives(w)
	if cases == nil && byCases(r) {
		cases = c.types(w).each(w)
	}
	if cases == nil {
		return bad
	}
	bad = nil
	for _, one := range cases {
		bad = append(bad, c.within(one, r, at)...)
	}
	return bad
}

// outside returns the first of some values that a subschema refuses.
func (c *comparer) outside(values []any, r *jsonschema.Schema, at string) []string {
	for _, v := range values {
		if !c.accepts(r, v) {
			text, _ := json.Marshal(v) // it was JSON
			return c.says(at, "{R} refuses %s, which {W} allows", shortened(string(text), mostShown))
		}
	}
	return nil
}

// byCases reports whether a schema may follow from each case of the facts, and not visibly from all
// of them together.
func byCases(r *jsonschema.Schema) bool {
	combined := r.AllOf != nil || r.AnyOf != nil || r.OneOf != nil
	conditional := r.Not != nil || r.If != nil
	listed := r.Enum != nil || r.Const != nil
	return combined || conditional || listed || r.Ref != nil
}

// direct goes through the keywords of the reader's subschema.
func (c *comparer) direct(w facts, r *jsonschema.Schema, at string) (bad []string) {
	add := func(reasons []string) { bad = append(bad, reasons...) }
	if r.Bool != nil {
		return c.says(at, "{R} allows no value here, and {W} does")
	}
	types := c.types(w)
	if more := types &^ typesOf(r); more != 0 {
		add(c.says(at, "{R} allows no %s here, and {W} does", more))
		if types &^= more; types == 0 {
			return bad
		}
	}
	if r.Enum != nil || r.Const != nil {
		add(c.says(at, "{R} allows certain values only, and {W} others too"))
	}
	if r.Ref != nil {
		add(c.within(w, r.Ref, at))
	}
	for _, sub := range r.AllOf {
		add(c.within(w, sub, at))
	}
	add(c.choices(w, r, at))
	if types&anyNumber != 0 {
		add(c.numbers(w, r, at))
	}
	if types&typeString != 0 {
		add(c.texts(w, r, at))
	}
	if types&typeArray != 0 {
		add(c.arrays(w, r, at))
	}
	if types&typeObject != 0 {
		add(c.objects(w, r, at))
	}
	if types&typeArray != 0 && !isTrue(r.UnevaluatedItems) || types&typeObject != 0 && !isTrue(r.UnevaluatedProperties) {
		add(c.says(at, "{R} has unevaluatedProperties or unevaluatedItems where it is not as {W}"+undecided))
	}
	return bad
}

// choices goes through the keywords that combine subschemas, allOf and $ref aside.
func (c *comparer) choices(w facts, r *jsonschema.Schema, at string) (bad []string) {
	if r.AnyOf != nil && !slices.ContainsFunc(r.AnyOf, func(sub *jsonschema.Schema) bool { return c.within(w, sub, at) == nil }) {
		if len(r.AnyOf) == 1 {
			bad = append(bad, c.within(w, r.AnyOf[0], at)...)
		} else {
			bad = append(bad, c.says(at, "no subschema of {R}'s anyOf allows all that {W} does"+undecided)...)
		}
	}
	if r.OneOf != nil {
		bad = append(bad, c.oneOf(w, r, at)...)
	}
	if r.Not != nil && !c.excluded(w, r.Not) {
		bad = append(bad, c.says(at, "{R} has a not that may refuse what {W} allows"+undecided)...)
	}
	if r.If == nil {
		return bad
	}
	if !isTrue(r.Then) && !c.excluded(w, r.If) {
		bad = append(bad, c.within(c.with(w, r.If), r.Then, at+"/then")...)
	}
	if !isTrue(r.Else) && c.within(w, r.If, at) != nil {
		bad = append(bad, c.within(c.without(w, r.If), r.Else, at+"/else")...)
	}
	return bad
}

func (c *comparer) oneOf(w facts, r *jsonschema.Schema, at string) []string {
	for _, s := range w.fits {
		if s.OneOf != nil && c.sameSubschemas(s.OneOf, r.OneOf) {
			return nil
		}
	}
	for i, sub := range r.OneOf {
		if c.within(w, sub, at) != nil {
			continue
		}
		alone := true
		for j, other := range r.OneOf {
			alone = alone && (i == j || c.excluded(w, other))
		}
		if alone {
			return nil
		}
		return c.says(at, "what {W} allows may fit several subschemas of {R}'s oneOf"+undecided)
	}
	if len(r.OneOf) == 1 {
		return c.within(w, r.OneOf[0], at)
	}
	return c.says(at, "no subschema of {R}'s oneOf allows all that {W} does"+undecided)
}

// excluded reports whether no value of these facts fits a schema.
func (c *comparer) excluded(w facts, sub *jsonschema.Schema) bool {
	for _, n := range w.fitsNot {
		if c.within(c.factsOf(sub), n, "") == nil {
			return true
		}
	}
	both := c.with(w, sub)
	if c.empty(both) {
		return true
	}
	cases := c.alternatives(both)
	return cases != nil && !slices.ContainsFunc(cases, func(one facts) bool { return !c.empty(one) })
}

// numbers goes through the keywords about numbers.
func (c *comparer) numbers(w facts, r *jsonschema.Schema, at string) (bad []string) {
	whole := c.types(w)&typeFraction == 0
	reader := []*jsonschema.Schema{r}
	if have, asked := lowest(w.fits, whole, false), lowest(reader, whole, false); asked != nil && (have == nil || asked.above(*have)) {
		bad = append(bad, c.says(at, "{R} refuses numbers below %s, and {W} allows some", asked)...)
	}
	if have, asked := lowest(w.fits, whole, true), lowest(reader, whole, true); asked != nil && (have == nil || asked.above(*have)) {
		bad = append(bad, c.says(at, "{R} refuses numbers above %s, and {W} allows some", asked.negated())...)
	}
	multiple := func(s *jsonschema.Schema) bool { return isMultiple(s.MultipleOf, r.MultipleOf) }
	if r.MultipleOf != nil && !slices.ContainsFunc(w.fits, multiple) &&
		!(whole && isMultiple(ratOne, r.MultipleOf)) {
		bad = append(bad, c.says(at, "{R} has multipleOf %s, and {W} allows other numbers", r.MultipleOf.RatString())...)
	}
	return bad
}

// texts goes through the keywords about strings.
func (c *comparer) texts(w facts, r *jsonschema.Schema, at string) (bad []string) {
	if r.MinLength != nil && least(w.fits, minLength) < *r.MinLength {
		bad = append(bad, c.says(at, "{R} refuses texts shorter than %d, and {W} allows some", *r.MinLength)...)
	}
	if r.MaxLength != nil && most(w.fits, maxLength) > *r.MaxLength {
		bad = append(bad, c.says(at, "{R} refuses texts longer than %d, and {W} allows some", *r.MaxLength)...)
	}
	matches := func(s *jsonschema.Schema) bool { return s.Pattern != nil && s.Pattern.String() == r.Pattern.String() }
	if r.Pattern != nil && !slices.ContainsFunc(w.fits, matches) {
		bad = append(bad, c.says(at, "{R} has the pattern %s, which {W} does not have"+undecided, shown(r.Pattern.String()))...)
	}
	return bad
}

// least is the highest of the lower bounds, 0 for none; most the lowest of the upper ones.
func least(schemas []*jsonschema.Schema, bound func(*jsonschema.Schema) *int) (n int) {
	for _, s := range schemas {
		if b := bound(s); b != nil {
			n = max(n, *b)
		}
	}
	return n
}

func most(schemas []*jsonschema.Schema, bound func(*jsonschema.Schema) *int) int {
	n := int(^uint(0) >> 1)
	for _, s := range schemas {
		if b := bound(s); b != nil {
			n = min(n, *b)
		}
	}
	return n
}

func minLength(s *jsonschema.Schema) *int     { return s.MinLength }
func maxLength(s *jsonschema.Schema) *int     { return s.MaxLength }
func minItems(s *jsonschema.Schema) *int      { return s.MinItems }
func maxItems(s *jsonschema.Schema) *int      { return s.MaxItems }
func minProperties(s *jsonschema.Schema) *int { return s.MinProperties }
func maxProperties(s *jsonschema.Schema) *int { return s.MaxProperties }

// sortedKeys are the keys of a map in order, so that reasons and steps are the same every time.
func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	return slices.Sorted(maps.Keys(m))
}
