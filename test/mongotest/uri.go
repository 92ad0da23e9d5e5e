package mongotest

import (
	"cmp"
	"net/url"
	"slices"
	"strings"
)

// connString is a MongoDB connection string in parts. It is taken apart by hand, as net/url refuses
// lists of hosts.
type connString struct {
	scheme, user, hosts, database string
	options                       []string // name=value
}

func splitURI(uri string) connString {
	var c connString
	var rest, query string
	c.scheme, rest, _ = strings.Cut(uri, "://")
	rest, query, _ = strings.Cut(rest, "?")
	rest, c.database, _ = strings.Cut(rest, "/")
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		c.user, rest = rest[:at], rest[at+1:]
	}
	c.hosts = rest
	if query != "" {
		c.options = strings.Split(query, "&")
	}
	return c
}

func (c connString) String() string {
	s := c.scheme + "://"
	if c.user != "" {
		s += c.user + "@"
	}
	s += c.hosts + "/" + c.database
	if len(c.options) > 0 {
		s += "?" + strings.Join(c.options, "&")
	}
	return s
}

// without returns the options except those of the names, in any case of letters.
func (c connString) without(names ...string) []string {
	var kept []string
	for _, o := range c.options {
		name, _, _ := strings.Cut(o, "=")
		if !slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(name, n) }) {
			kept = append(kept, o)
		}
	}
	return kept
}

// withDatabase names the database. Authentication stays with the database that was named before, or
// with admin.
func withDatabase(uri, database string) string {
	c := splitURI(uri)
	if c.user != "" && len(c.without("authSource")) == len(c.options) {
		c.options = append(c.options, "authSource="+cmp.Or(c.database, "admin"))
	}
	c.database = url.PathEscape(database)
	return c.String()
}

// withHost names one host instead of all, and keeps the driver from looking for others.
func withHost(uri, addr string) string {
	c := splitURI(uri)
	c.scheme, c.hosts = "mongodb", addr
	c.options = append(c.without("replicaSet", "directConnection", "loadBalanced"), "directConnection=true")
	return c.String()
}
