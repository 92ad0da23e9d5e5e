package budget

// Identities is how many identities are remembered.
func (b *Budget) Identities() int {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return len(b.shares)
}
