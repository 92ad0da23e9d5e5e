package report

import (
	"cmp"
	_ "embed"
	"html/template"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-bus/sluice/bench/internal/latency"
)

//go:embed report.html
var page string

var pageTemplate = template.Must(template.New("report").Funcs(template.FuncMap{
	"count": count, "orEmpty": orEmpty, "amount": amount,
}).Parse(page))

// HTML writes the results as one page that needs no network.
func (r *Results) HTML(w io.Writer) error {
	return pageTemplate.Execute(w, struct {
		*Results
		Groups []group
		Plots  []template.HTML
	}{r, r.groups(), r.plots()})
}

// A group is the rows of a case, which several systems may have.
type group struct {
	Title, Measures string
	Rows            []*Row
}

func (r *Results) groups() (all []group) {
	for _, row := range r.Rows {
		title := row.Scenario + ": " + row.Case
		at := slices.IndexFunc(all, func(g group) bool { return g.Title == title })
		if at < 0 {
			at, all = len(all), append(all, group{Title: title})
		}
		all[at].Rows = append(all[at].Rows, row)
		all[at].Measures = cmp.Or(all[at].Measures, row.Measures)
	}
	return all
}

// plots are the pictures: what is carried, how long it takes, how steady that is, and how it grows. Those of several systems are of one
// case each, side by side.
func (r *Results) plots() (all []template.HTML) {
	byName := map[string][]*Row{}
	var names []string
	for _, row := range r.Rows {
		if row.Skipped != "" {
			continue
		}
		name := row.Scenario
		if r.Systems != nil {
			name += ": " + row.Case
		}
		if byName[name] == nil {
			names = append(names, name)
		}
		byName[name] = append(byName[name], row)
	}
	for _, name := range names {
		rows := byName[name]
		for _, picture := range []template.HTML{rates(name, rows), tails(name, rows), throughput(name, rows)} {
			if picture != "" {
				all = append(all, picture)
			}
		}
		for _, row := range rows {
			all = append(all, growth(row)...)
		}
	}
	return all
}

// label tells a row from the others of a plot.
func (row *Row) label() string {
	if row.Durability != "" {
		short, _, _ := strings.Cut(row.Durability, " (")
		return row.System + ", " + short
	}
	return row.Case
}

func rates(name string, rows []*Row) template.HTML {
	all := make([]bar, 0, len(rows))
	for _, row := range rows {
		all = append(all, bar{row.label(), row.MPS, row.Spread[0], row.Spread[1]})
	}
	return bars(name+": events a second, with the spread of the rounds", all)
}

// tails are latencies by percentile, on an axis on which each step to the right is half of what is left.
func tails(name string, rows []*Row) template.HTML {
	p := plot{title: name + ": latency by percentile, ms", x: "percentile", y: "ms", logarithmic: true}
	place := func(percentile float64) float64 { return -math.Log2(max(1-percentile/100, 0.00005)) }
	for _, percentile := range []float64{0, 50, 90, 99, 99.9, 99.99} {
		p.ticks = append(p.ticks, tick{place(percentile), strconv.FormatFloat(percentile, 'g', -1, 64)})
	}
	for _, row := range rows {
		if len(row.Curve) != len(latency.Percentiles) {
			continue
		}
		l := line{name: row.label(), y: row.Curve}
		for _, percentile := range latency.Percentiles {
			l.x = append(l.x, place(percentile))
		}
		p.lines = append(p.lines, l)
	}
	return p.draw()
}

// throughput is how steady each row's median round was.
func throughput(name string, rows []*Row) template.HTML {
	p := plot{title: name + ": events a second over time, each row by its own average", x: "seconds", y: "of the average"}
	longest := 0
	for _, row := range rows {
		sum := int64(0)
		for _, n := range row.Series {
			sum += n
		}
		if len(row.Series) < 5 || sum == 0 {
			continue
		}
		longest = max(longest, len(row.Series))
		l, average := line{name: row.label()}, float64(sum)/float64(len(row.Series))
		for i, n := range row.Series {
			l.x, l.y = append(l.x, float64(i)/10), append(l.y, float64(n)/average)
		}
		p.lines = append(p.lines, l)
	}
	for second := 0; second <= longest/10; second += max(1, longest/100) {
		p.ticks = append(p.ticks, tick{float64(second), strconv.Itoa(second)})
	}
	return p.draw()
}

// growth is how a cost changes with what is there.
func growth(row *Row) (all []template.HTML) {
	if row.PointsOf == nil {
		return nil
	}
	of := row.PointsOf
	for i, name := range of[1:] {
		p := plot{title: row.Name() + ": " + name, x: of[0], y: name}
		l := line{name: name}
		for _, point := range row.Points {
			value := []float64{point.Value, point.Other}[i]
			l.x, l.y = append(l.x, math.Log10(max(point.At, 1))), append(l.y, value)
			p.ticks = append(p.ticks, tick{math.Log10(max(point.At, 1)), short(point.At)})
		}
		if slices.Max(l.y) > 0 {
			p.lines = []line{l}
			all = append(all, p.draw())
		}
	}
	return all
}
