package fleet

import (
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/test/testkit"
)

// "GET / of every HTTP listener is {…,"control_plane"?,…}": the URL of the control plane's REST API, wherever that listens, so that one
// URL of a sidecar is all that the command line needs.
func TestASidecarSaysWhereItsControlPlaneIs(t *testing.T) {
	t.Parallel()
	for what, args := range map[string][]string{
		"one address":   nil,
		"every address": {"--http-listen", "0.0.0.0:0", "--insecure"},
		"an own name":   {"--advertise-url", "http://localhost:1/"},
		"a socket":      {"--http-listen", "unix:" + t.TempDir() + "/http"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			cp := testkit.StartControlPlane(t, args...)
			want := "http://127.0.0.1" + cp.URL()[strings.LastIndex(cp.URL(), ":"):]
			switch {
			case what == "an own name":
				want = "http://localhost:1"
			case what == "a socket":
				want = ""
			}
			s := testkit.StartSidecar(t, t.TempDir(), "--control-plane", cp.XDS())
			for _, url := range []string{s.URL(), s.ReplayURL(), s.OpsURL()} {
				if told := testkit.Call(t, "GET", url+"/", "").JSON(t); told.Text("control_plane") != want {
					t.Errorf("%s says %q, want %q", url, told.Text("control_plane"), want)
				}
			}
			if want != "http://localhost:1" && want != "" {
				out, log, status := testkit.ClientProgram.Launch(t, nil, "fleet", "--url", s.URL()).Ended(t)
				if status != 0 || !strings.Contains(out, " yes ") {
					t.Errorf("exit status %d: %s %s", status, out, log)
				}
			}
		})
	}
	alone := testkit.StartSidecar(t, t.TempDir())
	if told := testkit.Call(t, "GET", alone.URL()+"/", "").JSON(t); told["control_plane"] != nil {
		t.Errorf("without a control plane: %v", told)
	}
}
