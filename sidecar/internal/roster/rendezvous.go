package roster

import "github.com/sluice-bus/sluice/sidecar/internal/eventlog"

// Owner chooses one of the names as the owner of what, by rendezvous hashing: the name with the
// highest hash of both wins (Thaler and Ravishankar, "A name-based mapping scheme for rendezvous",
// 1996). All sidecars that know the same names choose the same one. When a name is added or
// removed, only the things that this name owns change owners. The names are those of sidecars and
// not of lives, so a restarted sidecar owns the same things. Without names the owner is "".
func Owner(names []string, what string) string {
	var best string
	var most uint64
	for _, name := range names {
		if w := weight(name, what); best == "" || w > most || w == most && name < best {
			best, most = name, w
		}
	}
	return best
}

// weight is 64-bit FNV-1a over both, with the finalizer of MurmurHash3: with FNV alone, names that
// differ only at their end have nearly the same high bits.
func weight(name, what string) uint64 {
	const apart = "\xff" // a byte that no text has
	h := eventlog.HashStart
	for _, text := range [...]string{name, apart, what, apart} {
		h = eventlog.Hash(h, text)
	}
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
