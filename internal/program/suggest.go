package program

import (
	"fmt"
	"slices"
)

// suggestion returns ` (did you mean "…"?)` with the known name that is most like name, or "" where
// none is alike.
func suggestion(name string, known []string) string {
	best, least := "", max(2, len(name)/3)+1
	for _, candidate := range known {
		if distance := editDistance(name, candidate); distance < least {
			best, least = candidate, distance
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %q?)", best)
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
