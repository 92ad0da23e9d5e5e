package setting_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/internal/setting"
)

func TestCheckStore(t *testing.T) {
	for store, says := range map[string]string{
		"embedded:": "", "mongodb://db/x": "", "mongodb+srv://db": "",
		"": "embedded:", "redis:": "redis:…", "postgres://u:secret@h": "postgres:…", "u/secret:x": "embedded:", "secret@h:5": "embedded:",
	} {
		err := setting.CheckStore(store)
		switch {
		case (err == nil) != (says == ""):
			t.Errorf("%s: %v", store, err)
		case err != nil && (!strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "secret")):
			t.Errorf("%s: says %q", store, err)
		}
	}
}

func TestStoreOf(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store")
	if err := os.WriteFile(path, []byte("mongodb://u:p@db/x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		store, file, want string
		ok                bool
	}{
		{setting.Embedded, "", setting.Embedded, true},
		{"mongodb://a/x", "", "mongodb://a/x", true},
		{setting.Embedded, path, "mongodb://u:p@db/x", true},
		{"mongodb://a/x", path, "", false},
		{setting.Embedded, path + "x", "", false},
	} {
		got, err := setting.StoreOf(tc.store, tc.file)
		if _, wrong := errors.AsType[*setting.Error](err); got != tc.want || wrong == tc.ok || (err == nil) != tc.ok {
			t.Errorf("%q, %q: %q, %v", tc.store, tc.file, got, err)
		}
	}
}
