package limit

// Len is how many topics have buckets.
func (s *Set) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.topics)
}
