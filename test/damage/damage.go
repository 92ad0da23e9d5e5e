// Package damage has the ways in which tests damage one file of a data folder.
package damage

import (
	"bytes"
	"math/rand/v2"
)

// Kinds of damage: each changes a file's content, given an older one; nil removes the file, and ok says that
// something changed.
var Kinds = map[string]func(rng *rand.Rand, now, older []byte) (then []byte, ok bool){
	"flip": func(rng *rand.Rand, now, _ []byte) ([]byte, bool) {
		then := bytes.Clone(now)
		if len(then) > 0 {
			then[rng.IntN(len(then))] ^= 1 << rng.IntN(8)
		}
		return then, len(then) > 0
	},
	"page zeroed": func(rng *rand.Rand, now, _ []byte) ([]byte, bool) {
		then := bytes.Clone(now)
		const page = 512
		at := rng.IntN(len(then)/page+1) * page
		clear(then[at:min(at+page, len(then))])
		return then, !bytes.Equal(then, now)
	},
	"truncated": func(rng *rand.Rand, now, _ []byte) ([]byte, bool) {
		if len(now) == 0 {
			return nil, false
		}
		return now[:rng.IntN(len(now))], true
	},
	"emptied": func(_ *rand.Rand, now, _ []byte) ([]byte, bool) { return []byte{}, len(now) > 0 },
	"removed": func(*rand.Rand, []byte, []byte) ([]byte, bool) { return nil, true },
	"older": func(_ *rand.Rand, now, older []byte) ([]byte, bool) {
		return older, older != nil && !bytes.Equal(older, now)
	},
}
