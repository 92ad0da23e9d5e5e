package controlplane

import (
	"errors"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/require"
)

// The policies of an --auth-config entry reach the API.
func TestPoliciesOfAnEditor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "auth.yaml")
	text := "tokens: [{name: bob, role: editor, policies: [orders.*], token_file: bob}]"
	for name, data := range map[string]string{path: text, filepath.Join(filepath.Dir(path), "bob"): "bob-0123456789abcdef"} {
		require.NoError(t, os.WriteFile(name, []byte(data), 0o600))
	}
	a, err := access.Open(path, access.ControlPlane, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	r := httptest.NewRequest("PUT", "/v1/policies/a", nil)
	r.Header.Set("Authorization", "Bearer bob-0123456789abcdef")
	id, err := identities{a}.Identify(r)
	if err != nil || id.Edit("orders.*") != nil || !slices.Equal(id.Policies, []string{"orders.*"}) ||
		!errors.Is(id.Edit("*"), &wire.Error{Code: wire.Forbidden}) {
		t.Errorf("%+v %v", id, err)
	}
}
