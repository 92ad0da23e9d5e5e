package mongowatch

import (
	"net"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/internal/listen"
)

// InClear says whether what goes to the servers of a URL can be read on its way:
// without TLS, and to other machines. It looks up no names, and takes a mongodb+srv URL
// at its word.
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
