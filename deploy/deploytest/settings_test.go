package deploytest

import (
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/test/testkit"
)

var flagLine = regexp.MustCompile(`(?m)^\s+(?:-\w, )?--([a-z][a-z-]+)`)

// flags are the settings of a program, as its help lists them.
func flags(t *testing.T, bin string, args ...string) []string {
	t.Helper()
	out, err := exec.Command(bin, append(args, "--help")...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s --help: %v\n%s", bin, err, out)
	}
	var names []string
	for _, m := range flagLine.FindAllStringSubmatch(string(out), -1) {
		names = append(names, m[1])
	}
	if !slices.Contains(names, "log-level") {
		t.Fatalf("%s --help lists no flags:\n%s", bin, out)
	}
	return names
}

// checkSettings finds variables that the program does not read. Variables with another prefix are
// for other programs.
func checkSettings(t *testing.T, where string, known []string, variables []string) {
	t.Helper()
	for _, v := range variables {
		name, ours := strings.CutPrefix(v, "SLUICE_")
		if !ours {
			if !strings.HasPrefix(v, "OTEL_") && v != "GOMEMLIMIT" && v != "SSL_CERT_FILE" && !strings.HasPrefix(v, "POD_") && v != "PATH" {
				t.Errorf("%s: nobody reads %s", where, v)
			}
			continue
		}
		flag := strings.ToLower(strings.ReplaceAll(name, "_", "-"))
		if !slices.Contains(known, flag) {
			t.Errorf("%s: %s is set, and there is no --%s", where, v, flag)
		}
	}
}

func TestSettingsExist(t *testing.T) {
	sidecar := flags(t, testkit.SidecarProgram.Binary(t))
	controlPlane := flags(t, testkit.ControlPlaneProgram.Binary(t))
	sluice := flags(t, client.Binary(t), "status")

	services := composeServices(t)
	for _, name := range []string{"sidecar-a", "sidecar-b"} {
		checkSettings(t, "compose.yaml "+name, append(sidecar, "ops-url"), keys(at(services[name], "environment")))
	}
	checkSettings(t, "compose.yaml controlplane", append(controlPlane, "ops-url"), keys(at(services["controlplane"], "environment")))

	for _, g := range list(kustomization(t)["configMapGenerator"]) {
		var names []string
		for _, l := range list(at(g, "literals")) {
			name, _, _ := strings.Cut(l.(string), "=")
			names = append(names, name)
		}
		known := map[any][]string{"sluice-sidecar": sidecar, "sluice-controlplane": controlPlane}[at(g, "name")]
		checkSettings(t, "kustomization.yaml", known, names)
	}
	set, _ := sidecarContainer(t)
	checkSettings(t, "app.yaml sidecar", sidecar, variables(set))
	checkSettings(t, "app.yaml application", append(sluice, "url"), slices.DeleteFunc(variables(application(t)), func(v string) bool {
		return strings.HasPrefix(v, "ORDERS_")
	}))
	checkSettings(t, "controlplane.yaml", controlPlane, variables(controlPlaneContainer(t)))
}

// TestSecretsAndStoreAreGiven finds a file that a setting names and nobody mounts.
func TestSecretsAndStoreAreGiven(t *testing.T) {
	services, doc := composeServices(t), documents(t, read(t, "compose/compose.yaml"))[0]
	for name, s := range services {
		env, _ := at(s, "environment").(object)
		for variable, value := range env {
			secret, isSecret := strings.CutPrefix(text(value), "/run/secrets/")
			if isSecret && composeSecrets(doc, s)[secret] == "" {
				t.Errorf("%s: %s is %v, which it is not given", name, variable, value)
			}
		}
	}
	// In Kubernetes each file of a generator is mounted at /etc/sluice: by the ConfigMap's name,
	// the secret's.
	mounts := map[string]string{"sluice-controlplane": "sluice-controlplane", "sluice-sidecar": "orders-sidecar"}
	k := kustomization(t)
	for _, g := range list(k["configMapGenerator"]) {
		for _, l := range list(at(g, "literals")) {
			_, value, _ := strings.Cut(l.(string), "=")
			file, isFile := strings.CutPrefix(value, "/etc/sluice/")
			if !isFile {
				continue
			}
			given := slices.ContainsFunc(list(k["secretGenerator"]), func(s any) bool {
				return mounts[text(at(g, "name"))] == at(s, "name") && slices.ContainsFunc(list(at(s, "files")), func(f any) bool {
					return f == "secrets/"+file || strings.HasPrefix(text(f), file+"=secrets/")
				})
			})
			if !given {
				t.Errorf("kustomization.yaml: %v, and its secret has no such file", l)
			}
		}
	}
}

// composeSecrets are the files of a service's secrets, by what they are called in it.
func composeSecrets(doc, service object) map[string]string {
	files := map[string]string{}
	for _, s := range list(service["secrets"]) {
		source, target := text(s), text(s)
		if o, long := s.(object); long {
			source, target = text(o["source"]), text(o["target"])
		}
		files[target] = text(at(doc, "secrets", source, "file"))
	}
	return files
}

func keys(v any) []string {
	m, _ := v.(object)
	return slices.Sorted(maps.Keys(m))
}

// variables are the names in a container's env.
func variables(container any) (names []string) {
	for _, e := range list(at(container, "env")) {
		names = append(names, text(at(e, "name")))
	}
	return names
}

func text(v any) string {
	s, _ := v.(string)
	return s
}
