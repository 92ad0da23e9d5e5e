//go:build unix

package tutorial

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-bus/sluice/test/lockedbuffer"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

// session is what runs a page: a shell, and the programs beside it.
type session struct {
	t     *testing.T
	dir   string
	env   []string
	ports *strings.Replacer // the page's addresses by those that are used
	back  *strings.Replacer

	in  io.Writer // of the shell
	out *bufio.Reader
}

var address = regexp.MustCompile(`127\.0\.0\.1:[1-9]\d*`)

// usual are the settings of programs at their default addresses, which a page need not name.
var usual = map[string]string{
	"SLUICE_LISTEN": "127.0.0.1:7070", "SLUICE_REPLAY_LISTEN": "127.0.0.1:8083", "SLUICE_OPS_LISTEN": "127.0.0.1:7071",
	"SLUICE_XDS_LISTEN": "127.0.0.1:18000", "SLUICE_HTTP_LISTEN": "127.0.0.1:7080",
	"SLUICE_URL": "http://127.0.0.1:7070", "SLUICE_CONTROL_PLANE_URL": "http://127.0.0.1:7080",
}

// begin starts the shell of a page in a folder of its own.
func begin(t *testing.T, page string, env ...string) *session {
	t.Helper()
	testkit.Need(t, testkit.Curl)
	root, err := testkit.Root()
	require.NoError(t, err)
	for _, program := range []*testkit.Program{testkit.SidecarProgram, testkit.ControlPlaneProgram, testkit.ClientProgram} {
		program.Binary(t)
	}
	s := &session{t: t, dir: t.TempDir()}
	var there, back []string
	replaced := map[string]bool{"127.0.0.1:27017": true} // which no command uses
	for _, used := range append(address.FindAllString(page, -1), address.FindAllString(fmt.Sprint(usual), -1)...) {
		if !replaced[used] {
			replaced[used] = true
			free := testkit.FreeAddress(t)
			there, back = append(there, used, free), append(back, free, used)
		}
	}
	s.ports, s.back = strings.NewReplacer(there...), strings.NewReplacer(back...)
	s.env = append(os.Environ(), "HOME="+s.dir, "XDG_CONFIG_HOME="+s.dir, "TZ=UTC", "no_proxy=127.0.0.1",
		"PATH="+root+"/"+testkit.BuildFolder+":"+os.Getenv("PATH"), "EXAMPLES="+root+"/examples")
	for name, value := range usual {
		s.env = append(s.env, name+"="+s.ports.Replace(value))
	}
	s.env = append(s.env, env...)
	s.shell()
	return s
}

func (s *session) shell() {
	s.t.Helper()
	cmd := exec.Command("bash", "--norc")
	cmd.Dir, cmd.Env = s.dir, s.env
	in, err := cmd.StdinPipe()
	require.NoError(s.t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(s.t, err)
	cmd.Stderr = cmd.Stdout
	require.NoError(s.t, cmd.Start())
	s.t.Cleanup(func() {
		in.Close()
		cmd.Process.Kill()
		_ = cmd.Wait() // which was killed
	})
	s.in, s.out = in, bufio.NewReader(out)
}

// run runs the blocks of a page.
func (s *session) run(name, page string) {
	s.t.Helper()
	all, err := blocks(page)
	require.NoError(s.t, err)
	for _, b := range all {
		for _, step := range b.steps {
			got := ""
			status := "0"
			if b.background {
				got = s.start(step)
			} else {
				got, status = s.call(step.command)
			}
			if failed := strings.HasPrefix(step.want, "sluice: "); failed != (status != "0") {
				s.t.Fatalf("%s, the block at line %d:\n$ %s\nends with status %s and\n%s", name, b.line, step.command, status, got)
			}
			if !shown(step.want, got, b.background) {
				s.t.Fatalf("%s, the block at line %d:\n$ %s\nprints\n%s\nand the page shows\n%s", name, b.line, step.command, got, step.want)
			}
		}
	}
}

// call runs a command in the shell, and returns what it prints and its exit status.
func (s *session) call(command string) (printed, status string) {
	s.t.Helper()
	const end = "=== end of the command ==="
	_, err := fmt.Fprintf(s.in, "%s\nprintf '%s%%s\\n' $?\n", s.ports.Replace(command), end)
	require.NoError(s.t, err)
	var got strings.Builder
	for {
		line, err := s.out.ReadString('\n')
		if err != nil {
			s.t.Fatalf("$ %s\nends the shell (%v) after\n%s", command, err, got.String())
		}
		text, rest, ended := strings.Cut(line, end)
		if got.WriteString(text); ended {
			if text != "" { // the answer of curl ends without one
				got.WriteByte('\n')
			}
			return s.back.Replace(got.String()), strings.TrimSpace(rest)
		}
	}
}

// start starts a command that goes on, and returns what it prints until that is as the page shows it.
func (s *session) start(step step) string {
	s.t.Helper()
	cmd := exec.Command("bash", "--norc", "-c", "exec "+s.ports.Replace(step.command))
	var said, logged lockedbuffer.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = s.dir, s.env, &said, &logged
	require.NoError(s.t, cmd.Start())
	s.t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait() // the page has no more use for it
		if s.t.Failed() {
			s.t.Logf("$ %s\nprints\n%s\nand logs\n%s", step.command, said.String(), logged.String())
		}
	})
	testkit.Eventually(s.t, fmt.Sprintf("%q prints what the page shows", step.command), func() bool {
		return shown(step.want, s.back.Replace(said.String()), true)
	})
	return s.back.Replace(said.String())
}
