package coding_test

import (
	"testing"

	"github.com/sluice-bus/sluice/internal/httpapi/coding"
)

func TestNegotiate(t *testing.T) {
	for header, want := range map[string]string{
		"":                               coding.Identity,
		"identity":                       coding.Identity,
		"br, deflate":                    coding.Identity,
		"gzip":                           coding.Gzip,
		"GZIP":                           coding.Gzip,
		"x-gzip":                         coding.Gzip,
		"gzip, zstd":                     coding.Zstd,
		"zstd;q=0.5, gzip;q=0.5":         coding.Zstd,
		"zstd;q=0.5, gzip":               coding.Gzip,
		"zstd; q=0.9 , gzip ; q=0.8":     coding.Zstd,
		"gzip;q=0":                       coding.Identity,
		"gzip;q=0, zstd;Q=0.001":         coding.Zstd,
		"gzip;q=0.5, identity":           coding.Identity,
		"identity;q=0, gzip;q=0.1":       coding.Gzip,
		"*":                              coding.Gzip,
		"*;q=0":                          coding.Identity,
		"*;q=0, zstd":                    coding.Zstd,
		"gzip;q=0, *":                    coding.Identity,
		"gzip;q=2, zstd;q=x":             coding.Identity,
		"gzip;q=NaN":                     coding.Identity,
		"gzip;level=1":                   coding.Identity,
		"deflate, gzip, br, zstd":        coding.Zstd,
		"gzip, deflate, br;q=1.0, *;q=0": coding.Gzip,
		", ,;q=1":                        coding.Identity,
	} {
		if got := coding.Negotiate([]string{header}); got != want {
			t.Errorf("%q: %q, want %q", header, got, want)
		}
	}
	if got := coding.Negotiate([]string{"gzip;q=0.5", "zstd;q=0.4"}); got != coding.Gzip {
		t.Errorf("two headers: %q", got)
	}
}
