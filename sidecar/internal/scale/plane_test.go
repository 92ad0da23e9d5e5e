package scale

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

const (
	teams = 100
	// hot is the topic that every sidecar uses, changedGlob the glob whose changes are measured:
	// one topic in teams falls under it.
	hot         = "team-00.service-0.events"
	changedGlob = "team-07.*"
	seededRate  = 1000
)

// topicName is that of the i-th policy that is not a glob.
func topicName(i int) string { return fmt.Sprintf("team-%02d.service-%d.events", i%teams, i) }

// ownRate tells whether that policy has a rate of its own; the others have that of their glob.
func ownRate(i int) bool { return i/teams%2 == 0 }

// topicPolicies is how many policies are not globs.
func topicPolicies() int { return *policies - *policies/teams }

// seed writes the policies of the first start.
func seed(t *testing.T) (file string) {
	t.Helper()
	var text strings.Builder
	for i := range *policies / teams {
		name := "*"
		if i > 0 {
			name = fmt.Sprintf("team-%02d.*", i)
		}
		fmt.Fprintf(&text, "- {name: %q, publish: {rate: %d, burst: %d}}\n", name, seededRate, seededRate+i)
	}
	for i := range topicPolicies() {
		rate := ""
		if ownRate(i) {
			rate = fmt.Sprintf("rate: %d, ", seededRate)
		}
		fmt.Fprintf(&text, "- {name: %s, publish: {%sburst: %d}}\n", topicName(i), rate, seededRate+i%50)
	}
	file = filepath.Join(t.TempDir(), "policies.yaml")
	require.NoError(t, os.WriteFile(file, []byte(text.String()), 0o600))
	return file
}

// plane is the control plane, over all lives of its process.
type plane struct {
	*testkit.ControlPlane
	dir, address string // of its data, and for sidecars
	rate         int    // of the last change
}

func startPlane(t *testing.T) *plane {
	t.Helper()
	needFiles(t)
	p := &plane{dir: t.TempDir(), rate: 2 * seededRate}
	p.ControlPlane = testkit.StartControlPlane(t, "--data-dir", p.dir, "--policies", seed(t))
	p.address = p.XDS()
	return p
}

// needFiles ends the test where there can be too few open files. The programs raise their limits to
// the hard one by themselves.
func needFiles(t *testing.T) {
	t.Helper()
	const others = 200
	var limit syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	if need := *sidecars + others; limit.Max < uint64(need) {
		t.Fatalf("%d sidecars take %d open files and the hard limit is %d: raise it (ulimit -Hn, LimitNOFILE= of systemd, "+
			"nofile in limits.conf), or pass a lower -sidecars",
			*sidecars, need, limit.Max)
	}
}

// restart begins another life where the last one was killed. The sidecars do not find it if it is
// elsewhere.
func (p *plane) restart(t *testing.T, elsewhere bool) {
	t.Helper()
	address := p.address
	if elsewhere {
		address = "127.0.0.1:0"
	}
	p.ControlPlane = testkit.StartControlPlane(t, "--data-dir", p.dir, "--xds-listen", address)
}

// put gives a policy a rate that no other had, and returns it, the version and when it was sent.
func (p *plane) put(t *testing.T, name string) (rate float64, version int64, at time.Time) {
	t.Helper()
	p.rate++
	at = time.Now()
	var answer struct{ Version int64 }
	p.call(t, http.MethodPut, "/v1/policies/"+name, fmt.Sprintf(`{"publish":{"rate":%d,"burst":5000}}`, p.rate), &answer)
	return float64(p.rate), answer.Version, at
}

// acked counts the connected sidecars that have acked a version, or a later one.
func (p *plane) acked(t *testing.T, name string, version int64) (n int) {
	t.Helper()
	var list struct {
		Sidecars []struct {
			Connected bool
			Versions  map[string]int64
		}
	}
	p.call(t, http.MethodGet, "/v1/sidecars?policy="+url.QueryEscape(name), "", &list)
	for _, s := range list.Sidecars {
		if s.Connected && s.Versions[name] >= version {
			n++
		}
	}
	return n
}

func (p *plane) call(t *testing.T, method, path, body string, answer any) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, p.URL()+path, strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode >= 300 {
		err = fmt.Errorf("%s: %s", response.Status, text)
	}
	if err == nil {
		err = json.Unmarshal(text, answer)
	}
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
}

// ticks is how many units of /proc's processor times make a second, on every platform that Linux
// has.
const ticks = 100

// cpu is the processor time that the process has used.
func (p *plane) cpu(t *testing.T) time.Duration {
	t.Helper()
	text := p.proc(t, "stat")
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:])) // from the third one on
	sum := 0
	for _, field := range fields[11:13] { // utime and stime
		n, err := strconv.Atoi(field)
		if err != nil {
			t.Fatalf("/proc/%d/stat: %v", p.PID(), err)
		}
		sum += n
	}
	return time.Duration(sum) * time.Second / ticks
}

// memory is what the process has resident, in bytes: now, and at most so far.
func (p *plane) memory(t *testing.T) (now, most int64) {
	t.Helper()
	n, m, err := p.Memory()
	require.NoError(t, err)
	return int64(n), int64(m)
}

func (p *plane) proc(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", p.PID(), file))
	require.NoError(t, err)
	return text
}
