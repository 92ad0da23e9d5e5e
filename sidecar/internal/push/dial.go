package push

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"syscall"
	"time"
)

// dialTimeout is how long a connection to an endpoint may take to come about.
const dialTimeout = 5 * time.Second

// forbidden are networks where only the machine's own services are, among them clouds' metadata with their credentials. An
// entry gets there by naming the address; a host name that leads there may be an attack.
var forbidden = []netip.Prefix{
	netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("fe80::/10"), // link-local
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("::/128"), // unspecified
	netip.MustParsePrefix("224.0.0.0/3"), netip.MustParsePrefix("ff00::/8"), // multicast, broadcast and reserved
	netip.MustParsePrefix("100.100.100.200/32"), netip.MustParsePrefix("168.63.129.16/32"), netip.MustParsePrefix("192.0.0.192/32"),
	netip.MustParsePrefix("fd00:ec2::/32"), netip.MustParsePrefix("fd20:ce::254/128"),
}

// translated is the network that stands for IPv4's behind a gateway: its last 32 bits are the address.
var translated = netip.MustParsePrefix("64:ff9b::/96")

// checkAddress refuses an address that an entry's host leads to.
func checkAddress(host string, address netip.Addr) error {
	address = address.Unmap().WithZone("")
	if named, err := netip.ParseAddr(host); err == nil && named.Unmap().WithZone("") == address {
		return nil
	}
	target := address
	if translated.Contains(address) {
		full := address.As16()
		target = netip.AddrFrom4([4]byte(full[12:]))
	}
	for _, network := range forbidden {
		if network.Contains(target) {
			return fmt.Errorf("%s leads to %s in %s, where events are not sent unless the url names that address", host, address, network)
		}
	}
	return nil
}

// newTransport makes the connections of an entry. The address is checked at each dial, after the name was looked up: names may lead
// elsewhere each time. There is no proxy, which would dial unchecked.
func newTransport(to *url.URL, inflight int) *http.Transport {
	dialer := net.Dialer{Timeout: dialTimeout, ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
		ap, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		return checkAddress(to.Hostname(), ap.Addr())
	}}
	return &http.Transport{
		DialContext: dialer.DialContext, TLSHandshakeTimeout: dialTimeout, ForceAttemptHTTP2: true, DisableCompression: true,
		MaxIdleConnsPerHost: inflight, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: maxAnswer,
	}
}
