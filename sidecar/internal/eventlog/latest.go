package eventlog

import "unicode/utf8"

// LatestQuery selects the latest events of keys. The zero value selects all keys.
type LatestQuery struct {
	// From is the lowest key, and Below is above the highest; "": no bound. For the next page,
	// Below is the last key of the page before it.
	From, Below string
	// UpTo is, by partition, the highest seq that counts; nil: all seqs count.
	UpTo []uint64
}

// OneKey selects the latest event of a key.
func OneKey(key string) LatestQuery { return LatestQuery{From: key, Below: key + "\x00"} }

// KeyPrefix selects the latest events of keys that begin with prefix.
func KeyPrefix(prefix string) LatestQuery {
	q := LatestQuery{From: prefix}
	for r := []rune(prefix); len(r) > 0; r = r[:len(r)-1] {
		next := r[len(r)-1] + 1
		if next == 0xD800 { // a surrogate is no character
			next = 0xE000
		}
		if next <= utf8.MaxRune {
			q.Below = string(append(r[:len(r)-1:len(r)-1], next))
			break
		}
	}
	return q
}
