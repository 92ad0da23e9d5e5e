// Package schema holds the manifests of deploy/kubernetes, by kustomize, and the chart of deploy/helm,
// by Helm, against the types of Kubernetes' API, what the injector makes of pods against its levels of
// pod security, and deploy/compose against Compose's own loader. It is a module of its own, so that
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
)

// deploy is a copy of deploy/ in which the tokens have been made.
func deploy(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, part := range []string{"compose", "kubernetes", "prometheus", "grafana"} {
		if err := os.CopyFS(filepath.Join(dir, part), os.DirFS(filepath.Join("../..", part))); err != nil {
			t.Fatal(err)
		}
	}
	for _, folder := range []string{"compose", "kubernetes/base", "kubernetes/example"} {
		secrets := filepath.Join(dir, folder, "secrets")
		if out, err := exec.Command("bash", "../../secrets.sh", secrets, "sidecar-a", "sidecar-b",
			"orders:sluice.orders-*:*.orders-sidecar.sluice.svc").CombinedOutput(); err != nil {
			t.Fatalf("secrets.sh: %v\n%s", err, out)
		}
		store := []byte("SLUICE_STORE=mongodb://user:password@db.example.com/sluice?replicaSet=rs0\n")
		for _, name := range []string{"store.env", "controlplane-store.env"} {
			if err := os.WriteFile(filepath.Join(secrets, name), store, 0o600); err != nil {
				t.Fatal(err)
			}
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
	dir := filepath.Join(deploy(t), "kubernetes")
	for folder, want := range map[string]map[string]int{
		"base": {"v1/Secret": 2, "apps/v1/Deployment": 1, "v1/Service": 2, "apps/v1/StatefulSet": 0},
		"example": {"v1/Namespace": 1, "v1/ServiceAccount": 2, "v1/ConfigMap": 2, "v1/Secret": 5, "v1/Service": 4, "apps/v1/Deployment": 1,
			"apps/v1/StatefulSet": 1, "policy/v1/PodDisruptionBudget": 1, "networking.k8s.io/v1/NetworkPolicy": 3},
	} {
		built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join(dir, folder))
		if err != nil {
			t.Fatal(err)
		}
		seen, made := map[string]int{}, release{}
		for _, r := range built.Resources() {
			seen[r.GetApiVersion()+"/"+r.GetKind()]++
			text, err := r.AsYAML()
			if err != nil {
				t.Fatal(err)
			}
			made.add(t, folder, string(text))
			if r.GetKind() != "Namespace" && r.GetNamespace() != "sluice" {
				t.Errorf("%s %s is in the namespace %q", r.GetKind(), r.GetName(), r.GetNamespace())
			}
		}
		for kind, n := range want {
			if seen[kind] != n {
				t.Errorf("%s: %d of %s, want %d", folder, seen[kind], kind, n)
			}
		}
		if folder == "example" {
			checkSidecar(t, get[appsv1.StatefulSet](t, made, "StatefulSet orders"))
		}
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
		if !s.ReadOnly || s.Environment["SLUICE_CONFIG"] == nil || s.StopGracePeriod == nil {
			t.Errorf("%s lost what it shares with others: %+v", name, s)
		}
	}
}
