// Package schema holds the manifests of deploy/kubernetes against the types of Kubernetes' API, by
// kustomize, and deploy/compose against Compose's own loader. It is a module of its own, so that
// their dependencies are not Sluice's, and is run by `make check-deploy`: building them takes
// minutes the first time.
package schema

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// deploy is a copy of deploy/ in which the tokens have been made.
func deploy(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, part := range []string{"compose", "kubernetes", "prometheus", "grafana"} {
		if err := os.CopyFS(filepath.Join(dir, part), os.DirFS(filepath.Join("../..", part))); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("bash", "../../secrets.sh", filepath.Join(dir, part, "secrets"), "sidecar-a", "sidecar-b",
			"orders:sluice.orders-*:*.orders-sidecar.sluice.svc").CombinedOutput(); err != nil {
			t.Fatalf("secrets.sh: %v\n%s", err, out)
		}
	}
	store := []byte("SLUICE_STORE=mongodb://user:password@db.example.com/sluice?replicaSet=rs0\n")
	for _, name := range []string{"store.env", "controlplane-store.env"} {
		if err := os.WriteFile(filepath.Join(dir, "kubernetes/secrets", name), store, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// kinds are the types of what the manifests make.
var kinds = map[string]func() any{
	"v1/Namespace":                       func() any { return new(corev1.Namespace) },
	"v1/ServiceAccount":                  func() any { return new(corev1.ServiceAccount) },
	"v1/ConfigMap":                       func() any { return new(corev1.ConfigMap) },
	"v1/Secret":                          func() any { return new(corev1.Secret) },
	"v1/Service":                         func() any { return new(corev1.Service) },
	"apps/v1/Deployment":                 func() any { return new(appsv1.Deployment) },
	"apps/v1/StatefulSet":                func() any { return new(appsv1.StatefulSet) },
	"policy/v1/PodDisruptionBudget":      func() any { return new(policyv1.PodDisruptionBudget) },
	"networking.k8s.io/v1/NetworkPolicy": func() any { return new(networkingv1.NetworkPolicy) },
}

func TestKubernetes(t *testing.T) {
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join(deploy(t), "kubernetes"))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, r := range built.Resources() {
		kind := r.GetApiVersion() + "/" + r.GetKind()
		seen[kind]++
		make := kinds[kind]
		if make == nil {
			t.Errorf("%s %s: a kind that this test does not know", kind, r.GetName())
			continue
		}
		text, err := r.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		object := make()
		if err := yaml.UnmarshalStrict(text, object); err != nil {
			t.Errorf("%s %s: %v", kind, r.GetName(), err)
		}
		if r.GetKind() != "Namespace" && r.GetNamespace() != "sluice" {
			t.Errorf("%s %s is in the namespace %q", kind, r.GetName(), r.GetNamespace())
		}
		if set, ok := object.(*appsv1.StatefulSet); ok {
			checkSidecar(t, set)
		}
	}
	if len(seen) != len(kinds) || seen["v1/Secret"] != 5 {
		t.Errorf("made %v", seen)
	}
}

// checkSidecar looks at what kustomize made of names in the pod.
func checkSidecar(t *testing.T, set *appsv1.StatefulSet) {
	t.Helper()
	c := set.Spec.Template.Spec.InitContainers[0]
	if c.RestartPolicy == nil || *c.RestartPolicy != corev1.ContainerRestartPolicyAlways ||
		c.Image != "registry.example.com/sluice-sidecar:1.0.0" {
		t.Errorf("the sidecar is %s with restartPolicy %v", c.Image, c.RestartPolicy)
	}
	for _, from := range c.EnvFrom {
		if from.ConfigMapRef != nil && !strings.HasPrefix(from.ConfigMapRef.Name, "sluice-sidecar-") {
			t.Errorf("settings come from %s, which no change ever renames", from.ConfigMapRef.Name)
		}
	}
	for _, v := range set.Spec.Template.Spec.Volumes {
		if v.Secret != nil && *v.Secret.DefaultMode&0o004 != 0 {
			t.Errorf("everybody may read the volume %s", v.Name)
		}
	}
}

func TestCompose(t *testing.T) {
	file := filepath.Join(deploy(t), "compose", "compose.yaml")
	options, err := cli.NewProjectOptions([]string{file}, cli.WithConsistency(true), cli.WithInterpolation(true))
	if err != nil {
		t.Fatal(err)
	}
	project, err := options.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	names := project.ServiceNames()
	if len(names) != 10 || !slices.Contains(names, "sidecar-b") {
		t.Errorf("services %v", names)
	}
	for name, s := range project.Services {
		if !strings.HasPrefix(s.Image, "sluice-") {
			continue
		}
		if !s.ReadOnly || s.Environment["SLUICE_STORE"] == nil || s.StopGracePeriod == nil {
			t.Errorf("%s lost what it shares with others: %+v", name, s)
		}
	}
}
