package report

import (
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/sluice-bus/sluice/test/require"
)

// The levels of a logarithmic axis are as far apart as powers of ten are, also below the lowest value.
func TestLogarithmicLevels(t *testing.T) {
	p := plot{logarithmic: true, lines: []line{{x: []float64{0, 1, 2}, y: []float64{0, 0.36, 80}}}}
	var heights []float64
	for _, m := range regexp.MustCompile(`class="grid" x1="\d+" y1="([\d.]+)"`).FindAllStringSubmatch(string(p.draw()), -1) {
		y, err := strconv.ParseFloat(m[1], 64)
		require.NoError(t, err)
		heights = append(heights, y)
	}
	if want := []float64{256, 180, 104, 28}; !slices.EqualFunc(heights, want, func(a, b float64) bool { return a-b < 1 && b-a < 1 }) {
		t.Errorf("0.1, 1, 10 and 100 are at %v; want %v", heights, want)
	}
}
