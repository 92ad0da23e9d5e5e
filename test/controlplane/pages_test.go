package controlplane

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

// browsing is how long a browser may take to start and send what a page asks it to, on a loaded
// machine.
const browsing = time.Minute

// attempt is a request that a browser sent, and how it was answered.
type attempt struct{ listener, by, site string }

// watched are the listeners of the programs, and what browsers have asked there.
type watched struct {
	urls map[string]string // by name

	mu   sync.Mutex
	seen map[attempt]int // the status
	news chan struct{}
}

// watch puts a proxy before each listener, since a page does not learn how what it asked for was
// answered. The query tells the proxy how the page asked.
func watch(t *testing.T, listeners map[string]string) *watched {
	w := &watched{urls: map[string]string{}, seen: map[attempt]int{}, news: make(chan struct{}, 1)}
	for name, target := range listeners {
		to, err := url.Parse(target)
		require.NoError(t, err)
		proxy := httputil.NewSingleHostReverseProxy(to)
		proxy.ModifyResponse = func(resp *http.Response) error {
			r := resp.Request
			w.mu.Lock()
			w.seen[attempt{name, r.URL.Query().Get("group"), r.Header.Get("Sec-Fetch-Site")}] = resp.StatusCode
			w.mu.Unlock()
			select {
			case w.news <- struct{}{}:
			default:
			}
			return nil
		}
		server := httptest.NewServer(proxy)
		t.Cleanup(server.Close)
		t.Cleanup(server.CloseClientConnections)
		w.urls[name] = server.URL
	}
	return w
}

// missing is what has not been asked of the listeners yet.
func (w *watched) missing(want []attempt) (out []attempt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range want {
		if _, ok := w.seen[a]; !ok {
			out = append(out, a)
		}
	}
	return out
}

// visit opens a page in a browser, until all that is wanted has been asked.
func (w *watched) visit(t *testing.T, page string, want []attempt) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), browsing)
	defer cancel()
	dir := t.TempDir()
	cmd := exec.CommandContext(ctx, testkit.Need(t, testkit.Chromium), "--headless=new", "--disable-gpu", "--disable-dev-shm-usage",
		"--no-first-run",
		"--disable-popup-blocking", "--disable-background-networking", "--user-data-dir="+dir, "--host-resolver-rules=MAP evil.example 127.0.0.1",
		page)
	if os.Getuid() == 0 {
		cmd.Args = append(cmd.Args, "--no-sandbox")
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	require.NoError(t, cmd.Start())
	for ctx.Err() == nil && len(w.missing(want)) > 0 {
		select {
		case <-w.news:
		case <-ctx.Done():
		}
	}
	cancel()
	_ = cmd.Wait() // it was killed
	if missing := w.missing(want); len(missing) > 0 {
		t.Fatalf("the browser never asked %v\nof it:\n%s", missing, out.String())
	}
}

// serveOn serves pages on an address and returns their URL.
func serveOn(t *testing.T, addr string, pages http.Handler) string {
	t.Helper()
	site := httptest.NewUnstartedServer(pages)
	site.Listener.Close()
	var err error
	if site.Listener, err = net.Listen("tcp", addr); err != nil {
		t.Fatal(err)
	}
	site.Start()
	t.Cleanup(site.Close)
	t.Cleanup(site.CloseClientConnections)
	return site.URL
}

// attack does what a page can do without asking. $T are the URLs by listener.
const attack = `<!doctype html><title>a page</title><body><script>
const targets = $T, others = $O;
const open_ = u => window.open(u, '_blank');
for (const [name, url] of Object.entries(targets)) {
  const at = by => url + '&group=' + by;
  new Image().src = at('img');
  const frame = by => { const f = document.createElement('iframe'); f.name = name + by; document.body.append(f); return f };
  frame('iframe').src = at('iframe');
  const script = document.createElement('script'); script.src = at('script'); document.body.append(script);
  fetch(at('fetch'), {mode: 'no-cors'}).catch(() => {});
  fetch(at('fetchpost'), {mode: 'no-cors', method: 'POST', body: '{}'}).catch(() => {});
  fetch(at('cors')).catch(() => {});
  navigator.sendBeacon(at('beaconpost'), '{}');
  new EventSource(at('eventsource'));
  new WebSocket(at('websocket').replace('http', 'ws').replace(/(:\d+)\/[^?]*/, name === 'app' ? '$1/ws' : '$&'));
  frame('form');
  const form = document.createElement('form');
  Object.assign(form, {method: 'post', enctype: 'text/plain', action: at('formpost'), target: name + 'form'});
  document.body.append(form); form.submit();
  open_('/go?to=' + encodeURIComponent(at('location')));
}
for (const other of others) open_(other);
</script>`

var ways = []string{"img", "iframe", "script", "fetch", "fetchpost", "cors", "beaconpost", "eventsource", "formpost", "location"}

// A page that somebody opens in a browser can neither read nor change anything through any listener
// of this machine, whatever host it comes from, while the same addresses serve programs.
func TestPagesOfElsewhere(t *testing.T) {
	control := testkit.StartControlPlane(t)
	side := testkit.StartSidecar(t, t.TempDir(), "--control-plane", control.XDS())
	w := watch(t, map[string]string{"app": side.URL(), "replay": side.ReplayURL(), "ops": side.OpsURL(), "control": control.URL()})
	targets := map[string]string{
		"app":     w.urls["app"] + "/v1/topics/orders/stream?from=earliest",
		"replay":  w.urls["replay"] + "/export?topic=orders",
		"ops":     w.urls["ops"] + "/metrics?x=1",
		"control": w.urls["control"] + "/v1/policies?x=1",
	}
	resp, err := http.Post(side.URL()+"/v1/topics/orders/events", "application/json", strings.NewReader(`{"n":1}`))
	require.NoError(t, err)
	resp.Body.Close()

	// Another port of the same host is the same site; others are not.
	var others []string
	page := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		quoted := func(v any) string {
			text, err := json.Marshal(v)
			if err != nil {
				t.Error(err)
			}
			return string(text)
		}
		rw.Header().Set("Content-Type", "text/html")
		switch r.URL.Path {
		case "/", "/other":
			more := others
			if r.URL.Path == "/other" {
				more = []string{}
			}
			io.WriteString(rw, strings.NewReplacer("$T", quoted(targets), "$O", quoted(more)).Replace(attack))
		case "/go":
			fmt.Fprintf(rw, "<script>location = %s</script>", quoted(r.URL.Query().Get("to")))
		case "/redirect":
			http.Redirect(rw, r, targets["app"]+"&group=redirect", http.StatusFound)
		default:
			http.NotFound(rw, r)
		}
	})
	here := serveOn(t, "127.0.0.1:0", page)
	port := here[strings.LastIndexByte(here, ':'):]
	others = []string{here + "/other", "http://evil.example" + port + "/other"}

	var want []attempt
	for name := range targets {
		for _, by := range ways {
			want = append(want, attempt{name, by, "cross-site"}, attempt{name, by, "same-site"})
		}
		want = append(want, attempt{name, "websocket", ""}) // which has an Origin, and no Sec-Fetch-Site
	}
	w.visit(t, serveOn(t, "127.0.0.2:0", page), want)
	// A page at a typed address can redirect the browser as if the other address had been typed.
	redirected := attempt{"app", "redirect", "none"}
	w.visit(t, "http://evil.example"+port+"/redirect", []attempt{redirected})

	w.mu.Lock()
	for a, status := range w.seen {
		if a.by != "" && status != http.StatusForbidden { // the browser itself asks for the icon of what is shown in a window
			t.Errorf("%s, asked by %s of a page (%s): status %d, want 403", a.listener, a.by, a.site, status)
		}
	}
	w.mu.Unlock()

	// The page shows the setting that was typed and has no effect.
	typed := attempt{"ops", "typed", "none"}
	w.visit(t, w.urls["ops"]+"/metrics?group=typed", []attempt{typed})
	if status := w.seen[typed]; status != http.StatusOK {
		t.Errorf("metrics, by an address that was typed: status %d", status)
	}

	var groups struct{ Groups []json.RawMessage }
	resp, err = http.Get(side.URL() + "/v1/topics/orders/groups")
	require.NoError(t, err)
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&groups); err != nil || len(groups.Groups) != 0 {
		t.Errorf("groups of the topic: %s, %v; want none", groups.Groups, err)
	}
}
