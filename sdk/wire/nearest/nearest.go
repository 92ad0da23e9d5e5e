// Package nearest finds the known word that somebody probably meant.
package nearest

import (
	"fmt"
	"slices"
	"strings"
)

// Word returns the known word that is most like word, or "" where none is alike: it differs in few
// letters, or one is the other's beginning.
func Word(word string, known []string) (best string) {
	least := max(2, len(word)/3) + 1
	for _, candidate := range known {
		if shorter := min(len(word), len(candidate)); shorter >= 3 && word[:shorter] == candidate[:shorter] && least > 1 {
			best, least = candidate, 1
			continue
		}
		if max(len(word)-len(candidate), len(candidate)-len(word)) >= least {
			continue
		}
		if distance := editDistance(word, candidate); distance < least {
			best, least = candidate, distance
		}
	}
	return best
}

// Hint returns ` (did you mean "…"?)` with the nearest known word, or "" where none is alike: the end of an error.
func Hint(word string, known []string) string {
	if best := Word(word, known); best != "" {
		return fmt.Sprintf(" (did you mean %q?)", best)
	}
	return ""
}

// Known is Hint, or all known words where none is alike: "; known are a, b, c".
func Known(word string, known []string) string {
	hint := Hint(word, known)
	if hint == "" && len(known) > 0 {
		hint = "; known are " + strings.Join(known, ", ")
	}
	return hint
}

// editDistance is the Levenshtein distance in bytes: the least number of insertions, deletions and
// replacements that turn a into b.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1) // distances from a[:i] to every b[:j]
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		next := slices.Clone(row)
		next[0] = i + 1
		for j := range len(b) {
			replace := row[j]
			if a[i] != b[j] {
				replace++
			}
			next[j+1] = min(replace, row[j+1]+1, next[j]+1)
		}
		row = next
	}
	return row[len(b)]
}
