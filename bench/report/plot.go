package report

import (
	"fmt"
	"html/template"
	"math"
	"strings"
)

// A plot is lines over a horizontal axis, drawn as SVG that needs no script and prints well.
type plot struct {
	title, x, y string
	// ticks are the places of the horizontal axis that have a label.
	ticks       []tick
	lines       []line
	logarithmic bool // the vertical axis
}

type tick struct {
	at    float64
	label string
}

// A line is one curve.
type line struct {
	name string
	x, y []float64
}

const (
	plotWidth, plotHeight = 780, 300
	left, right           = 64, 240 // right of the lines are their names
	top, bottom           = 28, 44
)

// strokes tell lines apart without colour, too.
var strokes = []struct{ colour, dash string }{
	{"#2563eb", ""}, {"#dc2626", "6 3"}, {"#059669", "2 3"}, {"#9333ea", "8 3 2 3"}, {"#d97706", "1 2"}, {"#0891b2", "10 4"},
	{"#475569", "4 4"}, {"#be185d", "3 6"},
}

// draw returns the SVG; "" where there is nothing to draw.
func (p *plot) draw() template.HTML {
	xMin, xMax, yMax := math.Inf(1), math.Inf(-1), 0.0
	yMin := math.Inf(1)
	for _, l := range p.lines {
		for i := range l.x {
			xMin, xMax, yMax = min(xMin, l.x[i]), max(xMax, l.x[i]), max(yMax, l.y[i])
			if l.y[i] > 0 {
				yMin = min(yMin, l.y[i])
			}
		}
	}
	if math.IsInf(xMin, 1) || yMax == 0 {
		return ""
	}
	across := func(x float64) float64 {
		return left + (x-xMin)/max(xMax-xMin, 1e-9)*(plotWidth-left-right)
	}
	low, high := 0.0, yMax*1.05
	if p.logarithmic {
		low, high = math.Floor(math.Log10(yMin)), math.Ceil(math.Log10(yMax)+1e-9)
	}
	up := func(y float64) float64 {
		if p.logarithmic {
			y = max(math.Log10(max(y, 0)), low)
		}
		return plotHeight - bottom - (y-low)/max(high-low, 1e-9)*(plotHeight-top-bottom)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d %d" role="img" aria-label="%s">`, plotWidth, plotHeight, template.HTMLEscapeString(p.title))
	fmt.Fprintf(&b, `<text class="title" x="%d" y="16">%s</text>`, left, template.HTMLEscapeString(p.title))
	for _, value := range p.levels(low, high) {
		y := up(value)
		fmt.Fprintf(&b, `<line class="grid" x1="%d" y1="%.1f" x2="%d" y2="%.1f"/><text class="level" x="%d" y="%.1f">%s</text>`,
			left, y, plotWidth-right, y, left-6, y+4, short(value))
	}
	for _, t := range p.ticks {
		fmt.Fprintf(&b, `<text class="tick" x="%.1f" y="%d">%s</text>`, across(t.at), plotHeight-bottom+16, template.HTMLEscapeString(t.label))
	}
	fmt.Fprintf(&b, `<text class="tick" x="%d" y="%d">%s</text>`, (left+plotWidth-right)/2, plotHeight-8, template.HTMLEscapeString(p.x))
	fmt.Fprintf(&b, `<text class="level" transform="translate(12 %d) rotate(-90)" style="text-anchor:middle">%s</text>`,
		(top+plotHeight-bottom)/2, template.HTMLEscapeString(p.y))
	for i, l := range p.lines {
		stroke := strokes[i%len(strokes)]
		var path strings.Builder
		for k := range l.x {
			fmt.Fprintf(&path, "%.1f,%.1f ", across(l.x[k]), up(l.y[k]))
		}
		fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2" stroke-dasharray="%s"/>`, path.String(),
			stroke.colour, stroke.dash)
		y := top + 8 + 18*i
		fmt.Fprintf(&b, `<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="%s" stroke-width="2" stroke-dasharray="%s"/>`,
			plotWidth-right+8, y, plotWidth-right+30, y, stroke.colour, stroke.dash)
		fmt.Fprintf(&b, `<text class="name" x="%d" y="%d">%s</text>`, plotWidth-right+36, y+4, template.HTMLEscapeString(l.name))
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String()) // every text in it is escaped above
}

// levels are the labelled heights.
func (p *plot) levels(low, high float64) (levels []float64) {
	if p.logarithmic {
		for e := low; e <= high; e++ {
			levels = append(levels, math.Pow10(int(e)))
		}
		return levels
	}
	step := math.Pow10(int(math.Floor(math.Log10(high))))
	for _, part := range []float64{0.2, 0.5, 1, 2} {
		if high/(step*part) <= 6 {
			step *= part
			break
		}
	}
	for value := 0.0; value <= high; value += step {
		levels = append(levels, value)
	}
	return levels
}

// short writes a number for an axis.
func short(n float64) string {
	switch {
	case n >= 1e6:
		return fmt.Sprintf("%gM", n/1e6)
	case n >= 1e3:
		return fmt.Sprintf("%gk", n/1e3)
	}
	return fmt.Sprintf("%.4g", n)
}

// A bar is one of a chart of bars beside each other.
type bar struct {
	name  string
	value float64
	low   float64
	high  float64
}

// bars draws values, with the spread of each as a thin line.
func bars(title string, all []bar) template.HTML {
	const height, gap, names = 16, 8, 260
	most := 0.0
	for _, x := range all {
		most = max(most, x.value, x.high)
	}
	if most == 0 {
		return ""
	}
	total := 28 + len(all)*(height+gap)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d %d" role="img" aria-label="%s">`, plotWidth, total, template.HTMLEscapeString(title))
	fmt.Fprintf(&b, `<text class="title" x="0" y="16">%s</text>`, template.HTMLEscapeString(title))
	scale := float64(plotWidth-names-90) / most
	for i, x := range all {
		y := 28 + i*(height+gap)
		fmt.Fprintf(&b, `<text class="level" x="%d" y="%d">%s</text>`, names-8, y+12, template.HTMLEscapeString(x.name))
		fmt.Fprintf(&b, `<rect class="bar" x="%d" y="%d" width="%.1f" height="%d"/>`, names, y, x.value*scale, height)
		fmt.Fprintf(&b, `<line class="spread" x1="%.1f" y1="%d" x2="%.1f" y2="%d"/>`, names+x.low*scale, y+height/2,
			names+x.high*scale, y+height/2)
		fmt.Fprintf(&b, `<text class="name" x="%.1f" y="%d">%s</text>`, names+max(x.value, x.high)*scale+6, y+12, count(x.value))
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String()) // every text in it is escaped above
}
