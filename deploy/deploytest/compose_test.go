package deploytest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/sluice-bus/sluice/test/require"
)

// composeServices are the services, with merged keys.
func composeServices(t *testing.T) map[string]object {
	t.Helper()
	var doc struct{ Services map[string]object }
	require.NoError(t, yaml.Unmarshal([]byte(read(t, "compose/compose.yaml")), &doc))
	if len(doc.Services) < 8 {
		t.Fatalf("only %d services", len(doc.Services))
	}
	return doc.Services
}

// isOwn tells services of Sluice's images, which have health checks.
func isOwn(service object) bool { return strings.HasPrefix(text(service["image"]), "sluice-") }

var pinned = regexp.MustCompile(`:v?\d+\.\d+\.\d+$`)

func TestCompose(t *testing.T) {
	doc := documents(t, read(t, "compose/compose.yaml"))[0]
	services := composeServices(t)
	for name, s := range services {
		if image := text(s["image"]); !isOwn(s) && !pinned.MatchString(image) {
			t.Errorf("%s: the image %q has no exact version", name, image)
		}
		for _, p := range list(s["ports"]) {
			if !strings.HasPrefix(text(p), "127.0.0.1:") {
				t.Errorf("%s: port %v is published beyond loopback", name, p)
			}
		}
		for _, v := range list(s["volumes"]) {
			checkVolume(t, doc, name, text(v))
		}
		for _, n := range list(s["networks"]) {
			if _, known := doc["networks"].(object)[text(n)]; !known {
				t.Errorf("%s: no network %v", name, n)
			}
		}
		needs, _ := s["depends_on"].(object)
		for other, how := range needs {
			if services[other] == nil {
				t.Errorf("%s: depends on %s, which is not there", name, other)
			}
			if at(how, "condition") == "service_healthy" && at(services[other], "healthcheck") == nil && !isOwn(services[other]) {
				t.Errorf("%s: waits for the health of %s, which has no check", name, other)
			}
		}
	}
}

// checkVolume finds a file that is mounted and not there, and a volume that nobody declared.
func checkVolume(t *testing.T, doc object, service, volume string) {
	t.Helper()
	source, _, _ := strings.Cut(volume, ":")
	if !strings.HasPrefix(source, ".") {
		if _, known := doc["volumes"].(object)[source]; !known {
			t.Errorf("%s: no volume %s", service, source)
		}
		return
	}
	if _, err := os.Stat(filepath.Join("..", "compose", source)); err != nil {
		t.Errorf("%s: %v", service, err)
	}
	if !strings.HasSuffix(volume, ":ro") {
		t.Errorf("%s: %s may be written to", service, volume)
	}
}

// TestComposePorts holds the addresses that services call each other by against the ones that they
// listen on.
func TestComposePorts(t *testing.T) {
	services := composeServices(t)
	port := func(service, variable string) string {
		value := text(at(services[service], "environment", variable))
		return value[strings.LastIndex(value, ":")+1:]
	}
	if got := text(at(services["sidecar-a"], "environment",
		"SLUICE_CONTROL_PLANE")); got != "controlplane:"+port("controlplane", "SLUICE_XDS_LISTEN") {
		t.Errorf("the sidecars look for the control plane at %s", got)
	}
	for _, s := range []string{"sidecar-a", "sidecar-b"} {
		if got := text(at(services[s], "environment", "SLUICE_REPLAY_ADVERTISE")); got != s+":"+port(s, "SLUICE_REPLAY_LISTEN") {
			t.Errorf("%s tells others that it is at %s", s, got)
		}
	}
	targets := read(t, "compose/targets/sidecars.yaml") + read(t, "compose/targets/controlplanes.yaml")
	for _, want := range []string{
		"sidecar-a:" + port("sidecar-a", "SLUICE_OPS_LISTEN"), "sidecar-b:" + port("sidecar-b", "SLUICE_OPS_LISTEN"),
		"controlplane:" + port("controlplane", "SLUICE_HTTP_LISTEN"),
	} {
		if !strings.Contains(targets, want) {
			t.Errorf("Prometheus is not told of %s", want)
		}
	}
}

// TestCollector holds the pipelines against what is declared.
func TestCollector(t *testing.T) {
	doc := documents(t, read(t, "compose/otel-collector.yaml"))[0]
	pipelines := at(doc, "service", "pipelines").(object)
	if !slices.Equal(keys(pipelines), []string{"logs", "metrics", "traces"}) {
		t.Errorf("pipelines %v", keys(pipelines))
	}
	for name, p := range pipelines {
		for _, kind := range []string{"receivers", "processors", "exporters"} {
			for _, part := range list(at(p, kind)) {
				if _, declared := at(doc, kind).(object)[text(part)]; !declared {
					t.Errorf("%s: no %s in %s", name, part, kind)
				}
			}
		}
	}
}

// TestComposeDatabaseHasUsers: nobody is let into the database without a password, and each program
// has its own user, with the rights that mongodb.md names.
func TestComposeDatabaseHasUsers(t *testing.T) {
	services, doc := composeServices(t), documents(t, read(t, "compose/compose.yaml"))[0]
	for _, name := range []string{"mongo1", "mongo2", "mongo3"} {
		command := list(services[name]["command"])
		if i := slices.Index(command, any("--keyFile")); i < 0 || composeSecrets(doc, services[name])["mongodb.key"] == "" {
			t.Errorf("%s: %v", name, command)
		}
	}
	for name, file := range map[string]string{"sidecar-a": "./secrets/store-sidecar.yaml", "sidecar-b": "./secrets/store-sidecar.yaml",
		"controlplane": "./secrets/store-controlplane.yaml"} {
		env, _ := services[name]["environment"].(object)
		if got := composeSecrets(doc, services[name])["store.yaml"]; got != file || env["SLUICE_STORE"] != nil ||
			env["SLUICE_CONFIG"] != "/run/secrets/store.yaml" {
			t.Errorf("%s: its store is in %v, of %q", name, env["SLUICE_CONFIG"], got)
		}
	}
	folder := filepath.Join(prometheusFolder(t), "secrets")
	script, guide := read(t, "compose/replica-set.js"), read(t, "mongodb.md")
	for user, database := range map[string]string{"sidecar": "sluice", "controlplane": "controlplane"} {
		url, err := os.ReadFile(filepath.Join(folder, "store-"+user+".yaml"))
		password, missing := os.ReadFile(filepath.Join(folder, "mongodb-"+user))
		want := fmt.Sprintf("store: mongodb://%s:%s@mongo1,mongo2,mongo3/%s?replicaSet=rs0\n",
			user, strings.TrimSpace(string(password)), database)
		if err != nil || missing != nil || string(url) != want || len(password) < 32 {
			t.Errorf("store-%s.yaml is %q, %v, %v", user, url, err, missing)
		}
		rights := regexp.MustCompile(`user\("` + user + `", "` + database + `", "\w+",\s*(\[[^\]]*\])`).FindStringSubmatch(script)
		if rights == nil || !strings.Contains(guide, "actions: "+rights[1]) && !strings.Contains(guide, rights[1]) {
			t.Errorf("the rights of %s are not those of mongodb.md: %q", user, rights)
		}
	}
	if key, err := os.ReadFile(filepath.Join(folder, "mongodb.key")); err != nil || len(key) > 1100 || len(key) < 100 {
		t.Errorf("mongodb.key: %d bytes, %v", len(key), err)
	}
}
