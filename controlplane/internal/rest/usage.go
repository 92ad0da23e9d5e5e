package rest

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/sluice-bus/sluice/controlplane/internal/usage"
	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// Usage has what topics and tenants used on the days before. It is safe for concurrent use.
type Usage interface {
	// Between returns the sums of days, both included, of topics whose names begin with a prefix, ascending.
	Between(ctx context.Context, from, to, prefix string, tenants bool) ([]usage.Row, error)
}

// defaultUsage is how many days an answer has by itself.
const defaultUsage = 30

func (h *handler) usageRoute() httpapi.Route {
	return httpapi.Route{
		Pattern: "GET /v1/usage", Summary: "accepted and refused events by topic and day or month, the latest first", Query: []httpapi.Param{
			httpapi.OneOf("by", "the period", "day", "month").Or("day"),
			httpapi.Text("from", "the first day, such as 2026-01-31"), httpapi.Text("to", "the last day; today by default"),
			httpapi.Text("prefix", "only topics whose names begin so"),
			httpapi.OneOf("tenants", "1 adds the tenants of topics", "0", "1").Or("0"),
			httpapi.Whole("limit", "most elements of the page", 1, maxList).Or(strconv.Itoa(defaultList)),
			httpapi.Text("cursor", "next of the page before"),
		},
		Answers: []httpapi.Answer{ok[usageBody]("a page of usage")}, Errors: []wire.Code{wire.StoreUnavailable}, Serve: h.known(h.usage),
	}
}

// usageBody is a page of usage.
type usageBody struct {
	Usage []usedBody `json:"usage"`
	Next  string     `json:"next,omitempty"`
}

// usedBody is the usage of a topic or a tenant in a period.
type usedBody struct {
	Period string `json:"period"` // 2026-01-31 or 2026-01
	usage.Row
}

// usagePlace is the last row of a page.
type usagePlace struct {
	Period string     `json:"p"`
	Name   usage.Name `json:"n"`
}

func (h *handler) usage(w http.ResponseWriter, r *request) error {
	periods, err := periodsOf(r)
	if err != nil {
		return err
	}
	var after *usagePlace
	if text := r.Text("cursor"); text != "" {
		raw, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil || json.Unmarshal(raw, &after) != nil || after == nil {
			return httpapi.BadParam("cursor", "it is not one that this list gave")
		}
	}
	limit := int(r.Whole("limit"))
	body := usageBody{Usage: []usedBody{}}
	for _, p := range periods {
		if after != nil && p.name > after.Period {
			continue
		}
		rows, err := h.Usage.Between(r.Context(), p.from, p.to, r.Text("prefix"), r.Text("tenants") == "1")
		if err != nil {
			h.Logger.Error("cannot read the usage of topics", "error", err)
			return &wire.Error{Code: wire.StoreUnavailable, RetryAfter: retryAfter, Msg: "the policy store cannot be read; try again"}
		}
		if after != nil && p.name == after.Period {
			rows = slices.DeleteFunc(rows, func(row usage.Row) bool { return row.Compare(after.Name) <= 0 })
		}
		for _, row := range rows {
			if len(body.Usage) == limit {
				last := body.Usage[limit-1]
				cursor, err := json.Marshal(usagePlace{last.Period, last.Name})
				if err != nil {
					return err
				}
				body.Next = base64.RawURLEncoding.EncodeToString(cursor)
				return h.answer(w, r, http.StatusOK, body)
			}
			body.Usage = append(body.Usage, usedBody{p.name, row})
		}
	}
	return h.answer(w, r, http.StatusOK, body)
}

// period is a day or a month.
type period struct{ name, from, to string }

// periodsOf are those that a request asks for, the latest first.
func periodsOf(r *request) (list []period, err error) {
	last := time.Now().UTC().Truncate(24 * time.Hour)
	if last, err = dayParam(r, "to", last); err != nil {
		return nil, err
	}
	first, err := dayParam(r, "from", last.AddDate(0, 0, 1-defaultUsage))
	switch {
	case err != nil:
		return nil, err
	case first.After(last):
		return nil, httpapi.BadParam("from", "it is after the last day, %s", last.Format(time.DateOnly))
	case last.Sub(first) > usage.KeepDays*24*time.Hour:
		return nil, httpapi.BadParam("from", "usage is kept for %d days: ask for at most so many", usage.KeepDays)
	}
	byMonth := r.Text("by") == "month"
	for to := last; !to.Before(first); {
		from, name := to, to.Format(time.DateOnly)
		if byMonth {
			from, name = to.AddDate(0, 0, 1-to.Day()), to.Format("2006-01")
		}
		from = later(from, first)
		list = append(list, period{name, from.Format(time.DateOnly), to.Format(time.DateOnly)})
		to = from.AddDate(0, 0, -1)
	}
	return list, nil
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

func dayParam(r *request, name string, usual time.Time) (time.Time, error) {
	text := r.Text(name)
	if text == "" {
		return usual, nil
	}
	day, err := time.Parse(time.DateOnly, text)
	if err != nil {
		return day, httpapi.BadParam(name, "%.64q is not a day such as 2026-01-31", text)
	}
	return day, nil
}
