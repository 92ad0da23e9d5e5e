package xds

import (
	"net"
	"testing"
)

func TestReachable(t *testing.T) {
	tcp := &net.TCPAddr{IP: net.IPv4(10, 1, 2, 3), Port: 5}
	for _, test := range []struct {
		address string
		from    net.Addr
		want    string
	}{
		{"10.0.0.1:8083", tcp, "10.0.0.1:8083"},
		{"host:8083", tcp, "host:8083"},
		{"0.0.0.0:8083", tcp, "10.1.2.3:8083"},
		{"[::]:8083", tcp, "10.1.2.3:8083"},
		{":8083", tcp, "10.1.2.3:8083"},
		{"0.0.0.0:8083", &net.UnixAddr{Name: "x"}, "0.0.0.0:8083"},
		{"unix:/x", tcp, "unix:/x"},
		{"", nil, ""},
	} {
		if got := reachable(test.address, test.from); got != test.want {
			t.Errorf("%q from %v: got %q, want %q", test.address, test.from, got, test.want)
		}
	}
}
