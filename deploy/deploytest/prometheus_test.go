package deploytest

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

// prometheusFolder is what a Prometheus has at /etc/prometheus: the files of deploy/prometheus,
// tokens, and the targets of compose.
func prometheusFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, from := range []string{"prometheus", "compose/targets"} {
		to := dir
		if from != "prometheus" {
			to = filepath.Join(dir, filepath.Base(from))
		}
		require.NoError(t, os.CopyFS(to, os.DirFS(filepath.Join("..", from))))
	}
	testkit.Need(t, testkit.OpenSSL)
	run(t, "..", "bash", "secrets.sh", filepath.Join(dir, "secrets"), "sidecar-a", "sidecar-b")
	return dir
}

func TestPrometheusConfigurations(t *testing.T) {
	dir := prometheusFolder(t)
	promtool(t, dir, "check", "config", "prometheus.yml")

	// Debian builds Prometheus without the discovery of Kubernetes: all but that is checked.
	const discovery = "kubernetes_sd_configs: [{role: pod}]"
	name := filepath.Join(dir, "kubernetes.yml")
	data, err := os.ReadFile(name)
	if err != nil || strings.Count(string(data), discovery) != 2 {
		t.Fatalf("%d jobs discover pods, %v", strings.Count(string(data), discovery), err)
	}
	data = []byte(strings.ReplaceAll(string(data), discovery, "static_configs: []"))
	require.NoError(t, os.WriteFile(name, data, 0o600))
	promtool(t, dir, "check", "config", "kubernetes.yml")
}

func TestAlertsByTheirUnitTests(t *testing.T) {
	tests := read(t, "prometheus/alerts_test.yaml")
	for _, r := range rules(t, "alerts.yaml") {
		if !strings.Contains(tests, "alertname: "+r.Alert+"\n") {
			t.Errorf("no test has %s fire", r.Alert)
		}
	}
	promtool(t, "../prometheus", "test", "rules", "alerts_test.yaml")
}

// rule is an alert, or a recording rule.
type rule struct {
	Alert, Record, Expr, For string
	Labels, Annotations      map[string]string
}

func rules(t *testing.T, name string) (all []rule) {
	t.Helper()
	var doc struct{ Groups []struct{ Rules []rule } }
	require.NoError(t, yaml.Unmarshal([]byte(read(t, "prometheus/"+name)), &doc))
	for _, g := range doc.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// TestAlertsSayWhatToDo holds each alert against the page that its runbook is on.
func TestAlertsSayWhatToDo(t *testing.T) {
	page := read(t, "README.md")
	for _, r := range rules(t, "alerts.yaml") {
		if !slices.Contains([]string{"warning", "critical"}, r.Labels["severity"]) || r.Annotations["summary"] == "" ||
			r.Annotations["description"] == "" {
			t.Errorf("%s: labels %v, annotations %v", r.Alert, r.Labels, r.Annotations)
		}
		if r.Annotations["runbook"] != "deploy/README.md#"+strings.ToLower(r.Alert) || !strings.Contains(page, "\n#### "+r.Alert+"\n") {
			t.Errorf("%s: the runbook %s is not there", r.Alert, r.Annotations["runbook"])
		}
	}
}

// expression is a query and where it stands.
type expression struct{ where, expr string }

// dashboard are the queries of the dashboard's panels.
func dashboard(t *testing.T) (all []expression) {
	t.Helper()
	var doc struct {
		Templating struct {
			List []struct {
				Name, Type string
				Datasource struct{ UID string }
			}
		}
		Panels []struct {
			Title, Type string
			Datasource  struct{ UID string }
			Targets     []struct {
				Expr       string
				Datasource struct{ UID string }
			}
		}
	}
	require.NoError(t, json.Unmarshal([]byte(read(t, "grafana/sluice.json")), &doc))
	if doc.Templating.List[0].Name != "datasource" || doc.Templating.List[0].Type != "datasource" {
		t.Errorf("the first variable is %v, not the data source", doc.Templating.List[0])
	}
	for _, p := range doc.Panels {
		if p.Type == "row" {
			continue
		}
		if p.Datasource.UID != "${datasource}" || len(p.Targets) == 0 {
			t.Errorf("%s: data source %v, %d queries", p.Title, p.Datasource, len(p.Targets))
		}
		for _, q := range p.Targets {
			if q.Datasource.UID != "${datasource}" {
				t.Errorf("%s: data source %v", p.Title, q.Datasource)
			}
			all = append(all, expression{"dashboard, " + p.Title, q.Expr})
		}
	}
	if len(all) < 30 {
		t.Fatalf("only %d queries", len(all))
	}
	return all
}

// queries are those of rules, alerts and the dashboard.
func queries(t *testing.T) (all []expression) {
	t.Helper()
	for _, name := range []string{"rules.yaml", "alerts.yaml"} {
		for _, r := range rules(t, name) {
			all = append(all, expression{name + ", " + r.Alert + r.Record, r.Expr})
		}
	}
	return append(all, dashboard(t)...)
}

// filled is the query as Grafana sends it when everything is chosen.
func filled(expr string) string {
	return strings.NewReplacer("$__rate_interval", "1m", "$instance", ".*", "$topic", ".*").Replace(expr)
}

// TestDashboardParses has promtool read the dashboard's queries: as rules, which is what it reads.
func TestDashboardParses(t *testing.T) {
	type recording struct {
		Record string `yaml:"record"`
		Expr   string `yaml:"expr"`
	}
	var all []recording
	for i, q := range dashboard(t) {
		expr := filled(q.expr)
		if strings.Contains(expr, "$") {
			t.Errorf("%s: a variable that this test does not know: %s", q.where, q.expr)
		}
		all = append(all, recording{fmt.Sprint("dashboard_query:", i), expr})
	}
	data, err := yaml.Marshal(object{"groups": []object{{"name": "dashboard", "rules": all}}})
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "dashboard.yaml"), data, 0o600))
	promtool(t, dir, "check", "rules", "dashboard.yaml")
}

var (
	sluiceName = regexp.MustCompile(`\bsluice_[a-z_]+`)
	literals   = regexp.MustCompile(`"(sluice_[a-z_]+)"`)
	recorded   = regexp.MustCompile(`\b[a-z_]+:[a-z0-9_:]+`)
	histogram  = regexp.MustCompile(`_(bucket|sum|count)$`)
)

// TestMetricsExist finds names in rules and queries that the programs do not have: the names are in
// their source as they are here.
func TestMetricsExist(t *testing.T) {
	known := map[string]bool{}
	for _, folder := range []string{"sidecar", "controlplane"} {
		err := filepath.WalkDir(filepath.Join("../..", folder), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			source, err := os.ReadFile(path)
			for _, m := range literals.FindAllSubmatch(source, -1) {
				known[string(m[1])] = true
			}
			return err
		})
		require.NoError(t, err)
	}
	for _, r := range rules(t, "rules.yaml") {
		known[r.Record] = true
	}
	shown := map[string]bool{}
	for _, q := range queries(t) {
		for _, name := range recorded.FindAllString(q.expr, -1) {
			if !known[name] {
				t.Errorf("%s: no rule records %s", q.where, name)
			}
		}
		for _, name := range sluiceName.FindAllString(recorded.ReplaceAllString(q.expr, ""), -1) {
			name = histogram.ReplaceAllString(name, "")
			shown[name] = true
			if !known[name] {
				t.Errorf("%s: the programs have no metric %s", q.where, name)
			}
		}
	}
	for _, name := range sluiceName.FindAllString(read(t, "../sidecar/internal/telemetry/instruments.go"), -1) {
		if !shown[name] {
			t.Errorf("%s is counted, and on no panel and in no alert", name)
		}
	}
}
