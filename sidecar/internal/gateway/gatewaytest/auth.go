package gatewaytest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/sluice-bus/sluice/internal/access"
)

// Rights are the rights that most tests give the token "app".
const Rights = "publish: [orders, in.*], subscribe: [orders, in.*], groups: [billing, b-*]"

// Auth is a file of tokens in force.
type Auth struct {
	*access.Access
	file string
}

// Entry is the entry of a token, which is also its name.
func Entry(token, Rights string) string {
	return fmt.Sprintf(" - {name: %s, sha256: %x, %s}\n", token, sha256.Sum256([]byte(token)), Rights)
}

func AuthOf(t testing.TB, text string) Auth {
	t.Helper()
	a := Auth{file: filepath.Join(t.TempDir(), "auth.yaml")}
	a.Write(t, text)
	var err error
	if a.Access, err = access.Open(a.file, access.Sidecar, slog.New(slog.NewTextHandler(t.Output(), nil))); err != nil {
		t.Fatal(err)
	}
	return a
}

// Write changes the file.
func (a Auth) Write(t testing.TB, text string) {
	t.Helper()
	if err := os.WriteFile(a.file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Follow takes changes of the file up until the test ends.
func (a Auth) Follow(t testing.TB) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := a.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
}
