package otlptest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Drawing is how a tree of spans is drawn. The zero value draws names and kinds alone, which no two
// runs differ in.
type Drawing struct {
	// Services shows whose each span is, as service or service/instance.
	Services bool
	// Times shows how long after its trace began each span did, and how long it took.
	Times bool
	// Attributes are shown, where a span has them, in this order. An attribute given as
	// long.name=short is called short.
	Attributes []string
	// ByName sorts siblings by their labels instead of by their starts, for siblings that are under
	// way at the same time.
	ByName bool
}

// Tree draws the spans, one line each: one tree for each trace, each span under its parent. A span
// whose parent is not among them is drawn as a root, with a note about that; a link is drawn below
// its span.
//
//	send orders.created (producer) shop +0s 1.2ms
//	├─ send orders.created (producer) sluice-sidecar +0.3ms 0.7ms
//	│  └─ process orders.created (consumer) sluice-sidecar +2ms 14ms
//	└─ …
func (d Drawing) Tree(spans []Span) string {
	f := newForest(d, spans)
	traces := make(map[string][]int)
	var order []string
	for _, i := range f.roots {
		id := spans[i].Trace
		if traces[id] == nil {
			order = append(order, id)
		}
		traces[id] = append(traces[id], i)
	}
	var b strings.Builder
	for n, id := range order {
		if n > 0 {
			b.WriteByte('\n')
		}
		f.began = spans[traces[id][0]].Start
		for _, root := range traces[id] {
			f.draw(&b, root, "", "")
		}
	}
	return b.String()
}

// forest is the spans with the children of each.
type forest struct {
	Drawing
	spans    []Span
	at       map[Ref]int
	children map[int][]int
	roots    []int
	began    time.Time // the trace that is being drawn
}

func newForest(d Drawing, spans []Span) *forest {
	f := &forest{Drawing: d, spans: spans, at: make(map[Ref]int, len(spans)), children: make(map[int][]int)}
	for i, s := range spans {
		f.at[s.Ref] = i
	}
	for i, s := range spans {
		if p, ok := f.at[Ref{Trace: s.Trace, Span: s.Parent}]; ok && p != i {
			f.children[p] = append(f.children[p], i)
		} else {
			f.roots = append(f.roots, i)
		}
	}
	f.sort(f.roots)
	for _, c := range f.children {
		f.sort(c)
	}
	return f
}

func (f *forest) sort(of []int) {
	slices.SortStableFunc(of, func(a, b int) int {
		first := f.spans[a].Start.Compare(f.spans[b].Start)
		if f.ByName {
			first = 0
		}
		return cmp.Or(first, cmp.Compare(f.label(a), f.label(b)), cmp.Compare(f.spans[a].Span, f.spans[b].Span))
	})
}

// draw writes the span and all below it: its own line after lead, the others after indent.
func (f *forest) draw(b *strings.Builder, i int, lead, indent string) {
	s := f.spans[i]
	b.WriteString(lead + f.label(i))
	if f.Times {
		fmt.Fprintf(b, " +%s %s", short(s.Start.Sub(f.began)), short(s.End.Sub(s.Start)))
	}
	if s.Parent != "" && lead == "" {
		b.WriteString(" … under a span that was not received")
	}
	b.WriteByte('\n')
	below := f.children[i]
	bar := "   "
	if len(below) > 0 {
		bar = "│  "
	}
	for _, line := range f.links(s) {
		b.WriteString(indent + bar + "⇢ " + line + "\n")
	}
	for n, c := range below {
		if n == len(below)-1 {
			f.draw(b, c, indent+"└─ ", indent+"   ")
		} else {
			f.draw(b, c, indent+"├─ ", indent+"│  ")
		}
	}
}

// label is the line of a span, except for its times.
func (f *forest) label(i int) string {
	s := f.spans[i]
	parts := []string{s.Name}
	if s.Kind != "internal" && s.Kind != "unspecified" {
		parts = append(parts, "("+s.Kind+")")
	}
	if f.Services {
		who := s.Service
		if s.Instance != "" {
			who += "/" + s.Instance
		}
		parts = append(parts, who)
	}
	for _, wanted := range f.Attributes {
		name, called, renamed := strings.Cut(wanted, "=")
		if !renamed {
			called = name
		}
		if value, ok := s.Attributes[name]; ok {
			parts = append(parts, called+"="+value)
		}
	}
	for _, e := range s.Events {
		parts = append(parts, "!"+e)
	}
	if s.Failed {
		parts = append(parts, strings.TrimSpace("failed: "+s.Message))
	}
	return strings.Join(parts, " ")
}

// links are the spans that one is linked to, those with the same name together.
func (f *forest) links(s Span) (lines []string) {
	count := make(map[string]int)
	for _, l := range s.Links {
		what := "a span that was not received"
		if i, ok := f.at[l]; ok {
			what = f.spans[i].Name
		}
		if l.Trace != s.Trace {
			what += ", in another trace"
		}
		if count[what]++; count[what] == 1 {
			lines = append(lines, what)
		}
	}
	for i, what := range lines {
		if n := count[what]; n > 1 {
			lines[i] = fmt.Sprintf("%d × %s", n, what)
		}
	}
	slices.Sort(lines)
	return lines
}

// short is a duration that people can take in.
func short(d time.Duration) string {
	switch {
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(100 * time.Microsecond).String()
	}
	return d.Round(time.Microsecond).String()
}
