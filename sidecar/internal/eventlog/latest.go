package eventlog

import "unicode/utf8"

// LatestQuery selects latest events. The zero value selects those of all keys.
type LatestQuery struct {
	// From is the lowest key, and Below is above the highest; "": no bound. To
	// go on behind a page, Below is its last key.
	From, Below string
	// UpTo is by partition the highest seq that counts; nil: all do.
	UpTo []uint64
}

// OneKey selects the latest event of a key.
func OneKey(key string) LatestQuery { return LatestQuery{From: key, Below: key + "\x00"} }

// KeyPrefix selects the latest events of keys that begin with prefix.
func KeyPrefix(prefix string) LatestQuery {
	q := LatestQuery{From: prefix}
	for r := []rune(prefix); len(r) > 0; r = r[:len(r)-1] {
		next := r[len(r)-1] + 1
		if next == 0xD800 { // surrogates are no characters
			next = 0xE000
		}
		if next <= utf8.MaxRune {
			q.Below = string(append(r[:len(r)-1:len(r)-1], next))
			break
		}
	}
	return q
}
