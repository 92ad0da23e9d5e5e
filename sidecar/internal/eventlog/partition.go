package eventlog

// PartitionOf places an event: by its key, or by its id when it has no key.
// The function is part of the data format, since a key must find the same
// partition for as long as the topic exists: FNV-1a with 64 bits, modulo.
func PartitionOf(key, id string, partitions int) int {
	if key == "" {
		key = id
	}
	return int(Hash(HashStart, key) % uint64(partitions))
}

// HashStart begins a hash.
const HashStart uint64 = 14695981039346656037

// Hash goes on with a 64-bit FNV-1a hash.
func Hash(h uint64, text string) uint64 {
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * 1099511628211
	}
	return h
}
