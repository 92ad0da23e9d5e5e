package sidecar

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/test/require"
)

// A sidecar without --peers may be named in those of others: it accepts their token.
func TestPeersOfOthersAlone(t *testing.T) {
	dir := t.TempDir()
	for section, refused := range map[string]bool{"peers: {token_file: token}": false, "peers: {token_file: token, tls: true}": true} {
		for name, text := range map[string]string{"token": "token-of-the-peers", "auth.yaml": section} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		}
		a, err := access.Open(filepath.Join(dir, "auth.yaml"), access.Sidecar, slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		err = Config{Listen: "unix:/a", ReplayListen: "unix:/b", OpsListen: "unix:/c"}.checkReach(a)
		if refused != (err != nil) || refused && !strings.Contains(err.Error(), "missing") {
			t.Errorf("%s: %v", section, err)
		}
	}
}
