package deploytest

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

// stage is what the test wants to know of one FROM.
type stage struct {
	from, user       string
	env              object
	expose           []string
	health, entry    []string
	targets, volumes []string // targets of COPY; volumes
}

var healthCommand = regexp.MustCompile(`CMD (\[.*\])$`)

// dockerfile reads the stages by name. It knows the instructions that the file has, in the forms
// that it has them in.
func dockerfile(t *testing.T) map[string]*stage {
	t.Helper()
	lines := strings.ReplaceAll(read(t, "docker/Dockerfile"), "\\\n", "")
	stages := map[string]*stage{}
	var s *stage
	for line := range strings.Lines(lines) {
		line = strings.Join(strings.Fields(line), " ")
		op, rest, _ := strings.Cut(line, " ")
		switch op {
		case "", "#":
		case "FROM":
			words := strings.Fields(rest)
			s = &stage{from: words[len(words)-3], env: object{}}
			stages[words[len(words)-1]] = s
		case "USER":
			s.user = rest
		case "ENV":
			for _, pair := range strings.Fields(rest) {
				name, value, _ := strings.Cut(pair, "=")
				s.env[name] = value
			}
		case "EXPOSE":
			s.expose = strings.Fields(rest)
		case "VOLUME":
			s.volumes = strings.Fields(rest)
		case "COPY":
			words := strings.Fields(rest)
			s.targets = append(s.targets, words[len(words)-1])
		case "HEALTHCHECK":
			s.health = argv(t, healthCommand.FindStringSubmatch(rest)[1])
		case "ENTRYPOINT":
			s.entry = argv(t, rest)
		case "WORKDIR", "ARG", "RUN", "LABEL", "STOPSIGNAL":
		default:
			if !strings.HasPrefix(op, "#") {
				t.Fatalf("Dockerfile: an instruction that this test does not know: %s", line)
			}
		}
	}
	return stages
}

// argv reads the form of a command that needs no shell; there is none in the image.
func argv(t *testing.T, text string) (words []string) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &words); err != nil {
		t.Fatalf("Dockerfile: %s is not a list of strings: %v", text, err)
	}
	return words
}

func TestImages(t *testing.T) {
	stages := dockerfile(t)
	base := stages["base"]
	if base.from != "scratch" || !regexp.MustCompile(`^[1-9]\d*:[1-9]\d*$`).MatchString(base.user) {
		t.Errorf("images are made from %s and run as %s; want scratch, and a number", base.from, base.user)
	}
	if !slices.Equal(base.volumes, []string{text(base.env["SLUICE_DATA_DIR"])}) || !slices.Contains(base.targets, base.volumes[0]) {
		t.Errorf("the data folder %v is not the volume %v, or does not belong to the user", base.env["SLUICE_DATA_DIR"], base.volumes)
	}
	for name, ports := range map[string][]string{
		"sidecar":      defaultPorts(t, testkit.SidecarProgram.Binary(t), "listen", "replay-listen", "ops-listen"),
		"controlplane": defaultPorts(t, testkit.ControlPlaneProgram.Binary(t), "xds-listen", "http-listen"),
	} {
		s := stages[name]
		if s.from != "base" || s.user != "" || !slices.Equal(s.expose, ports) {
			t.Errorf("%s: from %s as %q with the ports %v; the program's are %v", name, s.from, s.user, s.expose, ports)
		}
		for _, file := range []string{s.entry[0], s.health[0]} {
			if !slices.Contains(append(s.targets, base.targets...), file) {
				t.Errorf("%s: %s is run and not in the image", name, file)
			}
		}
	}
}

func defaultPorts(t *testing.T, bin string, listeners ...string) (ports []string) {
	t.Helper()
	out, err := exec.Command(bin, "--help").Output()
	require.NoError(t, err)
	for _, l := range listeners {
		m := regexp.MustCompile(`(?s)--` + l + `=ADDR.*?127\.0\.0\.1:\s*(\d+)`).FindSubmatch(out)
		if m == nil {
			t.Fatalf("--%s has no default in\n%s", l, out)
		}
		ports = append(ports, string(m[1]))
	}
	return ports
}

// TestBuildContext finds a package that the programs need and the .dockerignore keeps out.
func TestBuildContext(t *testing.T) {
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	var folders []string
	for line := range strings.Lines(read(t, "docker/Dockerfile.dockerignore")) {
		if name, in := strings.CutPrefix(strings.TrimSpace(line), "!"); in {
			folders = append(folders, name)
			if _, err := os.Stat(filepath.Join(root, name)); err != nil {
				t.Error(err)
			}
		}
	}
	out := run(t, root, "go", "list", "-deps", "-f", "{{if not .Standard}}{{with .Module}}{{if .Main}}{{$.Dir}}{{end}}{{end}}{{end}}",
		"./sidecar/cmd/sluice-sidecar", "./controlplane/cmd/sluice-controlplane", "./controlplane/cmd/sluice-injector", "./sdk/cmd/sluice")
	dirs := strings.Fields(out)
	if len(dirs) < 20 {
		t.Fatalf("only %d packages: %s", len(dirs), out)
	}
	for _, dir := range dirs {
		rel, err := filepath.Rel(root, dir)
		require.NoError(t, err)
		if !slices.ContainsFunc(folders, func(f string) bool { return strings.HasPrefix(filepath.ToSlash(rel)+"/", f+"/") }) {
			t.Errorf("%s is needed and kept out by Dockerfile.dockerignore", rel)
		}
	}
}

// TestHealthChecks runs the images' health checks, as they are written, against the programs.
func TestHealthChecks(t *testing.T) {
	stages := dockerfile(t)
	sidecar, controlPlane := testkit.StartSidecar(t, t.TempDir()), testkit.StartControlPlane(t)
	for name, url := range map[string]string{"sidecar": sidecar.OpsURL(), "controlplane": controlPlane.URL()} {
		health := stages[name].health[1:]
		if status, out := probe(t, url, health); status != 0 || !strings.HasPrefix(out, "ready") && out != "ok\n" {
			t.Errorf("%s that serves: status %d, %s", name, status, out)
		}
	}
	sidecar.Kill()
	if status, out := probe(t, sidecar.OpsURL(), stages["sidecar"].health[1:]); status != 1 || !strings.Contains(out, "refused") {
		t.Errorf("sidecar that is gone: status %d, %s", status, out)
	}
}

// probe runs the client in an environment that has nothing but the listener.
func probe(t *testing.T, url string, args []string) (status int, out string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), client.Binary(t), args...)
	cmd.Env = []string{"SLUICE_OPS_URL=" + url, "SLUICE_TIMEOUT=30s"}
	cmd.Args = slices.DeleteFunc(cmd.Args, func(a string) bool { return a == "--timeout" || a == "3s" }) // a loaded machine's
	data, _ := cmd.CombinedOutput()                                                                      // the status says it
	return cmd.ProcessState.ExitCode(), string(data)
}
