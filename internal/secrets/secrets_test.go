package secrets

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/test/require"
)

func TestWithout(t *testing.T) {
	for text, want := range map[string]string{
		"mongodb://db1,db2:27018/events":                           "mongodb://db1,db2:27018/events",
		"mongodb://u:p@db1/events?replicaSet=rs0":                  "mongodb://db1/events",
		"mongodb+srv://u:p@ss/w@cluster/events?tlsPassword=geheim": "mongodb+srv://cluster/events",
		"mongodb://u@/x": "mongodb:///x",
	} {
		if got := Without(text); got != want {
			t.Errorf("Without(%q) = %q; want %q", text, got, want)
		}
	}
}

func TestRedact(t *testing.T) {
	const text = "mongodb://u:ge%20heim@db1/events?tlsPassword=hush"
	got := Redact(fmt.Errorf(`cannot parse "u:ge%%20heim", nor "ge heim", nor hush, of db1`), text)
	for _, secret := range []string{"heim", "hush", "u:"} {
		if strings.Contains(got, secret) {
			t.Errorf("%q has %q", got, secret)
		}
	}
	if !strings.Contains(got, "db1") {
		t.Errorf("%q lost what is no secret", got)
	}
	if got := Redact(fmt.Errorf("parse: %w", url.EscapeError("%zz")), text); strings.Contains(got, "zz") || !strings.Contains(got, "%25") {
		t.Errorf("a bad escape: %q", got)
	}
	if got := Redact(errors.New("no host"), "mongodb://"); got != "no host" {
		t.Errorf("%q", got)
	}
}

func TestFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	if _, err := FromFile(path); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	for text, want := range map[string]string{" one\n": "one", "": "", "\n": "", "two\nlines": "", "a b": "",
		strings.Repeat("x", maxFileBytes+1): ""} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		if got, err := FromFile(path); got != want || (err != nil) != (want == "") {
			t.Errorf("%.10q: %q, %v", text, got, err)
		}
	}
	require.NoError(t, os.WriteFile(path, []byte("first\n"), 0o600))
	secret, err := Follow(path)
	if err != nil || secret() != "first" {
		t.Fatalf("%v", err)
	}
	if err := os.WriteFile(path, []byte("second"), 0o600); err != nil || secret() != "second" {
		t.Errorf("%q, %v", secret(), err)
	}
	if err := os.Remove(path); err != nil || secret() != "second" {
		t.Errorf("%q, %v", secret(), err)
	}
}
