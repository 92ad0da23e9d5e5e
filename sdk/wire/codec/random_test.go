package codec

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// atRandom checks a property in many cases, other ones each time.
func atRandom(t *testing.T, check func(t *testing.T, r *rand.Rand)) {
	for range 1000 {
		check(t, rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())))
	}
}

// number spells a JSON number whose parts have at most so many digits, zeros more often than
// others.
func number(r *rand.Rand, whole, fraction, exponent int) string {
	var b strings.Builder
	digits := func(most int) {
		zeros := r.IntN(most)
		if r.IntN(2) == 0 {
			zeros = 0
		}
		b.WriteString(strings.Repeat("0", zeros))
		for range 1 + r.IntN(most-zeros) {
			b.WriteByte(byte('0' + r.IntN(10)))
		}
	}
	if r.IntN(2) == 0 {
		b.WriteByte('-')
	}
	if r.IntN(4) == 0 {
		b.WriteByte('0')
	} else {
		b.WriteByte(byte('1' + r.IntN(9)))
		if r.IntN(4) > 0 {
			digits(whole)
		} else {
			b.WriteString(strings.Repeat("0", r.IntN(whole)))
		}
	}
	if r.IntN(2) == 0 {
		b.WriteByte('.')
		digits(fraction)
	}
	if r.IntN(2) == 0 {
		b.WriteByte("eE"[r.IntN(2)])
		b.WriteString([]string{"", "+", "-"}[r.IntN(3)])
		digits(exponent)
	}
	return b.String()
}
