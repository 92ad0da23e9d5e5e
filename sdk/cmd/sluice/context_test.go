package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/test/sluicetest"
)

func TestContexts(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	sidecar := start(t, sluicetest.Options{})
	plain := &sluicetest.Sidecar{} // gives no URLs by the environment
	run(t, plain, "", "context", "list").wantOK(t)
	run(t, plain, "", "context", "add", "one", "--url", sidecar.URL, "--replay-url", sidecar.URL, "--token-file",
		"token").wantFailure(t, 2, "token")
	token := file(t, "secret")
	run(t, plain, "", "context", "add", "one", "--url", sidecar.URL, "--token-file", token).wantOK(t)
	run(t, plain, "", "context", "add", "two", "--url", "http://127.0.0.1:1").wantOK(t)
	run(t, plain, "", "context", "add", "../x", "--url", sidecar.URL).wantFailure(t, 2, "cannot name a context")
	run(t, plain, "", "context", "add", "x").wantFailure(t, 2, "--url")
	run(t, plain, "", "context", "use", "three").wantFailure(t, 3, "there are: one, two")
	run(t, plain, "", "pub", "t", "1", "--context", "one").wantOK(t)
	run(t, plain, "", "context", "use", "two").wantOK(t)
	run(t, plain, "", "pub", "t", "1").wantFailure(t, 1, "127.0.0.1:1")
	run(t, plain, "", "pub", "t", "1", "--url", sidecar.URL).wantOK(t)
	if got := run(t, plain, "", "context", "list").wantOK(t); !strings.Contains(got.stdout, "*  two") {
		t.Errorf("%s", got.stdout)
	}
	if got := run(t, plain, "", "context", "show", "one").wantOK(t); !strings.Contains(got.stdout, "url: "+sidecar.URL) ||
		!strings.Contains(got.stdout, "token-file: "+filepath.Dir(token)) {
		t.Errorf("%s", got.stdout)
	}
	run(t, plain, "", "context", "add", "eu", "--store", "s-1", "--control-plane-url", "http://127.0.0.1:2").wantOK(t)
	run(t, plain, "", "groups", "t", "--context", "eu").wantFailure(t, 1, "127.0.0.1:2")
	run(t, plain, "", "overview", "--context", "eu").wantFailure(t, 1, "127.0.0.1:2")
	run(t, plain, "", "pub", "t", "1", "--context", "eu").wantFailure(t, 2, "the context has only a store at a control plane: give --url")
	run(t, plain, "", "pub", "t", "1", "--context", "eu", "--url", sidecar.URL).wantOK(t)
	run(t, plain, "", "context", "remove", "two").wantFailure(t, 2, "--yes")
	run(t, plain, "", "context", "remove", "two", "--yes").wantOK(t)
	run(t, plain, "", "context", "show").wantFailure(t, 3, "no current context")
}
