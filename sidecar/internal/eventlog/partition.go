package eventlog

// PartitionOf is the partition of an event, by its key, or by its id if it has no key: 64-bit
// FNV-1a, modulo. The function is part of the data format, since a key must stay in its partition
// as long as the topic exists.
func PartitionOf(key, id string, partitions int) int {
	if key == "" {
		key = id
	}
	return int(Hash(HashStart, key) % uint64(partitions))
}

// HashStart is the start value of Hash.
const HashStart uint64 = 14695981039346656037

// Hash adds text to a 64-bit FNV-1a hash.
func Hash(h uint64, text string) uint64 {
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * 1099511628211
	}
	return h
}
