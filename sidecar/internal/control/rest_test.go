package control

import (
	"strings"
	"testing"
)

func TestRESTURL(t *testing.T) {
	for _, c := range []struct{ said, address, want string }{
		{"http://10.0.0.5:7080", "plane:18000", "http://10.0.0.5:7080"},
		{"https://plane.example", "plane:18000", "https://plane.example"},
		{"https://plane.example/", "plane:18000", "https://plane.example"},
		{"http://:7080", "plane:18000", "http://plane:7080"},
		{"https://:7080", "[::1]:18000", "https://[::1]:7080"},
		{"http://:7080", "unix:/run/xds", "http://127.0.0.1:7080"},
		{"", "plane:18000", ""},
		{"plane-1", "plane:18000", ""}, // of another control plane
		{"ftp://a", "plane:18000", ""},
		{"http://user:secret@a", "plane:18000", ""},
		{"http://", "plane:18000", ""},
		{"http://" + strings.Repeat("a", maxRESTURL), "plane:18000", ""},
	} {
		if got := restURL(c.said, c.address); got != c.want {
			t.Errorf("%.40s of %s is %.40q, want %q", c.said, c.address, got, c.want)
		}
	}
}
