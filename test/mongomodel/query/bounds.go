package query

import (
	"math"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// An Interval is a range of values in the order of Compare, its ends included unless they are open.
type Interval struct {
	Low, High         bson.RawValue
	LowOpen, HighOpen bool
}

// Bounds are intervals in order that do not overlap.
type Bounds []Interval

var (
	minKey = bson.RawValue{Type: bson.TypeMinKey}
	maxKey = bson.RawValue{Type: bson.TypeMaxKey}
	// everything has all values, the missing one too.
	everything = Bounds{{Low: minKey, High: maxKey}}
	// nullBounds are the values that count as null.
	nullBounds = Bounds{{Low: bson.RawValue{Type: bson.TypeUndefined}, High: bson.RawValue{Type: bson.TypeNull}}}
)

// Everything tells whether the bounds leave nothing out.
func (b Bounds) Everything() bool {
	return len(b) == 1 && b[0].Low.Type == bson.TypeMinKey && b[0].High.Type == bson.TypeMaxKey && !b[0].LowOpen && !b[0].HighOpen
}

// Points returns the values if the bounds consist of single values only.
func (b Bounds) Points() ([]bson.RawValue, bool) {
	var all []bson.RawValue
	for _, i := range b {
		if !i.isPoint() {
			return nil, false
		}
		all = append(all, i.Low)
	}
	return all, true
}

// isPoint counts null and undefined as one value: only empty arrays leave undefined in an index,
// and such an index is not used.
func (i Interval) isPoint() bool {
	return !i.LowOpen && !i.HighOpen && equal(i.Low, i.High)
}

// Contains tells whether the value is within the bounds.
func (b Bounds) Contains(v bson.RawValue) bool {
	return slices.ContainsFunc(b, func(i Interval) bool { return i.Contains(v) })
}

// Contains tells whether the value is within the interval.
func (i Interval) Contains(v bson.RawValue) bool {
	low, high := Compare(v, i.Low), Compare(v, i.High)
	after, before := low > 0 || low == 0 && !i.LowOpen, high < 0 || high == 0 && !i.HighOpen
	return after && before
}

func point(v bson.RawValue) Bounds { return Bounds{{Low: v, High: v}} }

// compareLow orders intervals by where they begin, compareHigh by where they end.
func compareLow(a, b Interval) int {
	if c := Compare(a.Low, b.Low); c != 0 || a.LowOpen == b.LowOpen {
		return c
	}
	if a.LowOpen {
		return 1
	}
	return -1
}

func compareHigh(a, b Interval) int {
	if c := Compare(a.High, b.High); c != 0 || a.HighOpen == b.HighOpen {
		return c
	}
	if a.HighOpen {
		return -1
	}
	return 1
}

func (i Interval) empty() bool {
	c := Compare(i.Low, i.High)
	return c > 0 || c == 0 && (i.LowOpen || i.HighOpen)
}

func (b Bounds) intersect(other Bounds) Bounds {
	if b.Everything() {
		return other
	}
	if other.Everything() {
		return b
	}
	var all Bounds
	for x, y := 0, 0; x < len(b) && y < len(other); {
		i := b[x]
		if compareLow(other[y], i) > 0 {
			i.Low, i.LowOpen = other[y].Low, other[y].LowOpen
		}
		if compareHigh(other[y], i) < 0 {
			i.High, i.HighOpen = other[y].High, other[y].HighOpen
		}
		if !i.empty() {
			all = append(all, i)
		}
		if compareHigh(b[x], other[y]) < 0 {
			x++
		} else {
			y++
		}
	}
	return all
}

func (b Bounds) union(other Bounds) Bounds {
	sorted := slices.Concat(b, other)
	slices.SortStableFunc(sorted, compareLow)
	var all Bounds
	for _, i := range sorted {
		if i.empty() {
			continue
		}
		if n := len(all); n > 0 && !apart(all[n-1], i) {
			if compareHigh(i, all[n-1]) > 0 {
				all[n-1].High, all[n-1].HighOpen = i.High, i.HighOpen
			}
			continue
		}
		all = append(all, i)
	}
	return all
}

// apart tells whether there may be a value between the two intervals; a begins first.
func apart(a, b Interval) bool {
	c := Compare(a.High, b.Low)
	return c < 0 || c == 0 && a.HighOpen && b.LowOpen
}

func (b Bounds) within(other Bounds) bool {
	for _, i := range b {
		if got := other.intersect(Bounds{i}); len(got) != 1 || compareLow(got[0], i) != 0 || compareHigh(got[0], i) != 0 {
			return false
		}
	}
	return true
}

// classBounds returns the values of a type's class.
func classBounds(t bson.Type) Interval {
	empty := newBuilder(0).doc()
	document := bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: empty}
	array := bson.RawValue{Type: bson.TypeArray, Value: empty}
	binary := bson.RawValue{Type: bson.TypeBinary, Value: []byte{0, 0, 0, 0, 0}}
	objectID := bson.RawValue{Type: bson.TypeObjectID, Value: make([]byte, 12)}
	date := func(ms int64) bson.RawValue {
		return bson.RawValue{Type: bson.TypeDateTime, Value: longValue(ms).Value}
	}
	switch class(t) {
	case 10:
		return Interval{Low: doubleValue(math.NaN()), High: doubleValue(math.Inf(1))}
	case 15:
		return Interval{Low: stringValue(""), High: document, HighOpen: true}
	case 20:
		return Interval{Low: document, High: array, HighOpen: true}
	case 25:
		return Interval{Low: array, High: binary, HighOpen: true}
	case 30:
		return Interval{Low: binary, High: objectID, HighOpen: true}
	case 35:
		return Interval{Low: objectID, High: boolValue(false), HighOpen: true}
	case 40:
		return Interval{Low: boolValue(false), High: boolValue(true)}
	case 45:
		return Interval{Low: date(math.MinInt64), High: date(math.MaxInt64)}
	}
	return everything[0]
}

// sortedUnique sorts values and drops duplicates.
func sortedUnique(all []bson.RawValue) []bson.RawValue {
	slices.SortStableFunc(all, Compare)
	return slices.CompactFunc(all, equal)
}

func search(sorted []bson.RawValue, v bson.RawValue) (int, bool) {
	return slices.BinarySearchFunc(sorted, v, Compare)
}
