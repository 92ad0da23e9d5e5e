package health

import (
	"fmt"
	"io"
	"strings"
)

// Alert is a rule of Prometheus.
type Alert struct {
	name                 string
	severity             Severity
	kind                 string // of incident; "": what no sidecar can report of itself
	expr, wait           string // wait is how long expr has to hold
	summary, description string
}

// alertGroups are all alerts, in the order of their file.
var alertGroups = []struct {
	name   string
	alerts []Alert
}{{"sluice-sidecar", sidecarAlerts}, {"sluice-groups", groupAlerts}, {"sluice-controlplane", controlPlaneAlerts}}

const alertsHead = `# Made by make alerts of the table of incidents, which is in controlplane/internal/health.
# Act on "critical" alerts at once, on "warning" the same day. Thresholds are for the programs' defaults; ../README.md#alerts has
# a runbook for each, and the thresholds that depend on a setting. Jobs are named as in prometheus.yml.
groups:
`

// WriteAlerts writes the file of alerts.
func WriteAlerts(to io.Writer) error {
	var b strings.Builder
	b.WriteString(alertsHead)
	for i, g := range alertGroups {
		if i > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "  - name: %s\n    rules:\n", g.name)
		for j := range g.alerts {
			g.alerts[j].write(&b)
		}
	}
	_, err := io.WriteString(to, b.String())
	return err
}

func (a *Alert) write(b *strings.Builder) {
	fmt.Fprintf(b, "      - alert: %s\n", a.name)
	if strings.Contains(a.expr, "\n") {
		fmt.Fprintf(b, "        expr: |\n          %s\n", strings.ReplaceAll(a.expr, "\n", "\n          "))
	} else {
		fmt.Fprintf(b, "        expr: %s\n", a.expr)
	}
	if a.wait != "" {
		fmt.Fprintf(b, "        for: %s\n", a.wait)
	}
	fmt.Fprintf(b, "        labels: {severity: %s}\n        annotations:\n", a.severity)
	fmt.Fprintf(b, "          summary: %q\n          description: %q\n", a.summary, a.description)
	if a.kind != "" {
		fmt.Fprintf(b, "          remedy: %q\n", kindOf[a.kind].remedy)
	}
	fmt.Fprintf(b, "          runbook: deploy/README.md#%s\n", strings.ToLower(a.name))
}
