package quota

// Fallen reports whether a topic goes by the fallback.
func (c *Client) Fallen(topic string) bool {
	v, ok := c.shares.Load(topic)
	if !ok {
		return false
	}
	s := v.(*share)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state == fallback
}

// Shares is how many shares there are.
func (c *Client) Shares() int {
	c.starts.Lock()
	defer c.starts.Unlock()
	return c.topicShares + c.tenantShares
}
