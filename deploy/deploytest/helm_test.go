package deploytest

import (
	"encoding/json"
	"regexp"
	"testing"

	"github.com/sluice-bus/sluice/internal/schema"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

var variableName = regexp.MustCompile(`SLUICE_[A-Z_]*[A-Z]\b`)

// TestChart holds the chart against the programs; the module schema renders it.
func TestChart(t *testing.T) {
	const chart = "helm/sluice/"
	for template, known := range map[string][]string{
		"controlplane.yaml": flags(t, testkit.ControlPlaneProgram.Binary(t)),
		"policies.yaml":     flags(t, client.Binary(t), "policy", "apply"),
	} {
		names := variableName.FindAllString(read(t, chart+"templates/"+template), -1)
		if len(names) < 3 {
			t.Errorf("%s has only the settings %q", template, names)
		}
		checkSettings(t, template, known, names)
	}
	compiled, err := schema.Compile(read(t, chart+"values.schema.json"))
	require.NoError(t, err)
	values := documents(t, read(t, chart+"values.yaml"))[0]
	text, err := json.Marshal(values)
	require.NoError(t, err)
	if wrong := compiled.Check(text); wrong != nil {
		t.Errorf("values.yaml: %v", wrong)
	}
	plane := at(controlPlaneContainer(t), "resources")
	if at(values, "controlPlane", "resources", "limits", "memory") != at(plane, "limits", "memory") ||
		at(values, "controlPlane", "goMemLimit") != literal(t, "sluice-controlplane", "GOMEMLIMIT") {
		t.Error("the chart bounds the control plane's memory otherwise than the kustomization")
	}
	sidecar, _ := sidecarContainer(t)
	if at(values, "sidecar", "memoryLimit") != at(sidecar, "resources", "limits", "memory") {
		t.Error("the chart bounds a sidecar's memory otherwise than the kustomization")
	}
}
