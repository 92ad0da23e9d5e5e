package eventlog

// PartitionOf places an event: by its key, or by its id when it has no key.
// The function is part of the data format, since a key must find the same
// partition for as long as the topic exists: FNV-1a with 64 bits, modulo.
func PartitionOf(key, id string, partitions int) int {
	const offset, prime = 14695981039346656037, 1099511628211
	s := key
	if s == "" {
		s = id
	}
	h := uint64(offset)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * prime
	}
	return int(h % uint64(partitions))
}
