package mongowatch

import (
	"net"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/internal/listen"
)

// InClear reports whether the network can read the traffic to the servers of a URL: it is without
// TLS, and goes to other machines. It looks up no names: a mongodb+srv URL counts as TLS unless it
// says otherwise.
func InClear(url string) bool {
	if strings.HasPrefix(url, "mongodb+srv:") {
		return strings.Contains(url, "tls=false") || strings.Contains(url, "ssl=false")
	}
	o := options.Client().ApplyURI(url)
	return o.TLSConfig == nil && slices.ContainsFunc(o.Hosts, func(host string) bool {
		if strings.HasPrefix(host, "/") { // a unix socket
			return false
		}
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(strings.Trim(host, "[]"), "27017")
		}
		return !listen.IsLoopback(host)
	})
}
