package setting_test

import (
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/internal/setting"
)

func TestCheckStore(t *testing.T) {
	for store, says := range map[string]string{
		"embedded:": "", "mongodb://db/x": "", "mongodb+srv://db": "",
		"": "embedded:", "redis:": "redis:…", "postgres://u:secret@h": "postgres:…", "u/secret:x": "embedded:", "secret@h:5": "embedded:",
		"embedded:/secret": "--data-dir",
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
