package gateway

import "slices"

// Patterns are those of all routes.
func (g *Gateway) Patterns() (patterns []string) {
	for i := range g.routes {
		patterns = append(patterns, g.routes[i].Pattern)
	}
	return patterns
}

// Publishes reports whether a route publishes.
func (g *Gateway) Publishes(pattern string) bool { return slices.Contains(g.audited, pattern) }
