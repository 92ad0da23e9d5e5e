package control

import (
	"net"
	"net/url"
)

// maxRESTURL bounds the URL that a control plane may say.
const maxRESTURL = 512

// restURL is the address of a control plane's REST API. Where the control plane says no host, it is that of the address at which
// this sidecar finds it. Anything but an http or https URL of a host is "".
func restURL(said, address string) string {
	u, err := url.Parse(said)
	if err != nil || len(said) > maxRESTURL || u.Host == "" || u.User != nil {
		return ""
	}
	if u.Scheme != "http" && u.Scheme != "https" {
		return ""
	}
	if u.Hostname() != "" {
		return u.Scheme + "://" + u.Host
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil || host == "unix" { // a socket is on this machine
		host = "127.0.0.1"
	}
	return u.Scheme + "://" + net.JoinHostPort(host, u.Port())
}
