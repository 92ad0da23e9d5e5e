package health

import (
	"cmp"
	"slices"

	"github.com/sluice-bus/sluice/sdk/wire"
)

const (
	// MaxRefused bounds the topics and codes of a report. Events of further ones count for the topic Other, those
	// of codes that are not known for the code Other.
	MaxRefused = 256
	Other      = "_other"
	// maxRefusedEvents is how many a report may have of each: a day of a billion a second.
	maxRefusedEvents = 1e14
)

// Refusal is why events of a topic were refused.
type Refusal struct {
	Topic string    `json:"topic"`
	Code  wire.Code `json:"code"`
}

// Refused counts events that were refused since the report before, on whichever stream that was.
type Refused struct {
	Refusal
	Events int64 `json:"events"`
}

// RefusedSince has what was counted between was and is, the most first. A count that has fallen began anew.
func RefusedSince(was, is map[Refusal]int64) (list []Refused) {
	for r, n := range is {
		if old := was[r]; old <= n {
			n -= old
		}
		if n > 0 {
			list = append(list, Refused{r, n})
		}
	}
	slices.SortFunc(list, func(a, b Refused) int {
		return cmp.Or(cmp.Compare(b.Events, a.Events), cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Code, b.Code))
	})
	if len(list) <= MaxRefused {
		return list
	}
	codes := len(wire.Codes())
	rest := list[MaxRefused-codes:]
	list = slices.Clip(list[:MaxRefused-codes])
	for _, r := range rest {
		i := slices.IndexFunc(list, func(of Refused) bool { return of.Refusal == Refusal{Other, r.Code} })
		if i < 0 {
			i = len(list)
			list = append(list, Refused{Refusal: Refusal{Other, r.Code}})
		}
		list[i].Events += r.Events
	}
	return list
}

// known is the count, of the code Other if its own is not known.
func (r Refused) known() Refused {
	if !slices.ContainsFunc(wire.Codes(), func(c wire.CodeInfo) bool { return c.Code == r.Code }) {
		r.Code = Other
	}
	return r
}
