// Package reference makes the pages of docs/reference: of the tables that the programs themselves use, so that they say what is so.
// It knows Markdown, and nothing of what the pages say.
package reference

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-bus/sluice/controlplane"
	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/internal/instrument"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar"
)

// Pages are the texts of the pages, by the names of their files.
func Pages() map[string]string {
	return map[string]string{
		"sidecar.md": settings(program.Spec{Name: "sluice-sidecar", Settings: new(sidecar.Config)}) +
			file("## The file of `--auth-config`\n\n[Security](../../deploy/security.md) explains it.", access.JSONSchema(access.Sidecar)) +
			file("## The file of `--push`\n\nA list of endpoints; each has these keys.", sidecar.PushSchema()["items"].(map[string]any)),
		"controlplane.md": settings(program.Spec{Name: "sluice-controlplane", Settings: new(controlplane.Config)}) +
			file("## The file of `--auth-config`\n\n[Security](../../deploy/security.md) explains it.", access.JSONSchema(access.ControlPlane)),
		"policy.md":  policies(),
		"metrics.md": metrics(),
		"errors.md":  errorCodes(),
	}
}

// table writes rows below a head.
func table(head []string, rows [][]string) string {
	var out strings.Builder
	line := func(cells []string) {
		for i, cell := range cells {
			cells[i] = strings.ReplaceAll(cell, "|", `\|`)
		}
		fmt.Fprintf(&out, "| %s |\n", strings.Join(cells, " | "))
	}
	line(head)
	out.WriteString("|" + strings.Repeat("---|", len(head)) + "\n")
	for _, row := range rows {
		line(row)
	}
	return out.String()
}

func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}

const made = "\nThis page is made of the programs by `make reference`.\n"

func settings(spec program.Spec) string {
	var rows [][]string
	for _, s := range program.Reference(spec) {
		help, byDefault := s.Help, code(s.Default)
		if strings.Contains(s.Default, " ") { // words, not a value
			byDefault = s.Default
		}
		if s.Least != "" {
			help += " At least " + code(s.Least) + "."
		}
		rows = append(rows, []string{code("--" + s.Name), code(s.Env), s.Value, byDefault, help})
	}
	return "# Settings of " + spec.Name + "\n" + made + `
A setting is a flag, a variable of the environment, and a key of the file that ` + "`--config`" + ` names: the flag's name without
its dashes. The flag wins over the environment, that over the file, that over the default. Durations are numbers with units, such as
` + "`1m30s`" + `. A list has commas between its elements, or is a list in the file.

` + table([]string{"flag", "environment", "value", "default", "meaning"}, rows)
}

// file is the section of a file of which a schema is known.
func file(head string, schema map[string]any) string {
	return "\n" + head + "\n\n" + table([]string{"key", "value", "meaning"}, keys("", schema))
}

func policies() string {
	var rows [][]string
	for _, row := range fields("", policy.PolicySchema()) {
		if row[0] != "`name`" {
			rows = append(rows, row)
		}
	}
	return "# Policies\n" + made + `
A policy is for a topic, or for all topics whose names begin with a prefix: its ` + "`name`" + ` is ` + "`orders.created`, `orders.*` or `*`" + `.
A topic takes each field from the policy of its own name, else from the one with the longest matching prefix that sets it, else the
default. [The policy document](../../controlplane/API.md#the-policy-document) has more, and the
[sidecar's operations page](../../sidecar/OPERATIONS.md#policies) has examples.

` + table([]string{"field", "value", "default", "meaning"}, rows)
}

func metrics() string {
	section := func(of []instrument.Metric) string {
		slices.SortFunc(of, func(a, b instrument.Metric) int { return strings.Compare(a.Name, b.Name) })
		var rows [][]string
		for _, m := range of {
			rows = append(rows, []string{code(m.Name), m.Type, code(strings.Join(m.Labels, "`, `")), unit(m.Unit), m.Help})
		}
		return table([]string{"metric", "type", "labels", "unit", "meaning"}, rows)
	}
	return "# Metrics\n" + made + `
` + "`GET /metrics`" + ` has them for Prometheus, on the sidecar's ops listener and the control plane's HTTP listener. With the standard
` + "`OTEL_…`" + ` variables they are sent by OTLP, too. Both programs also have Go's and the process's own metrics (` + "`go_…`, `process_…`" + `).

## The sidecar

Each sidecar shows its own part: the sum over the sidecars of a store is the whole. Topics and groups past a bound share the label
` + "`_other`" + `. [What they mean in detail](../../sidecar/OPERATIONS.md#health).

` + section(sidecar.Metrics()) + `
## The control plane

` + section(controlplane.Metrics())
}

// unit is a unit of OpenTelemetry's in words.
func unit(of string) string {
	switch of {
	case "s":
		return "seconds"
	case "By":
		return "bytes"
	case "":
		return ""
	}
	return strings.Trim(of, "{}") + "s"
}

func errorCodes() string {
	var out strings.Builder
	out.WriteString("# Errors\n" + made + `
An error has a code, which programs compare, and a sentence, which says what was wrong and what is allowed. Over HTTP it is
` + "`" + `{"error":"sentence","code":"…"}` + "`" + ` with the status below; over WebSocket ` + "`" + `{"op":"ERR","code":"…","msg":"sentence"}` + "`" + `, and the
connection stays open. ` + "`sluice docs errors CODE`" + ` prints one of these entries.
`)
	for _, c := range wire.Codes() {
		fmt.Fprintf(&out, "\n## %s\n\nHTTP %d. %s\n\n**Remedy:** %s\n", c.Code, c.Status, c.When, c.Remedy)
	}
	return out.String()
}
