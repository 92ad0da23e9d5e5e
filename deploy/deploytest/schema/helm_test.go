package schema

import (
	"bytes"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"text/template"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"
)

// chart is where the chart is.
const chart = "../../helm/sluice"

func init() {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // Helm tells of each symbolic link
	maps.Copy(kinds, map[string]func() any{
		"batch/v1/Job": func() any { return new(batchv1.Job) },
		"admissionregistration.k8s.io/v1/MutatingWebhookConfiguration": func() any {
			return new(admissionregistrationv1.MutatingWebhookConfiguration)
		},
		"monitoring.coreos.com/v1/ServiceMonitor": func() any { return new(monitoringv1.ServiceMonitor) },
		"monitoring.coreos.com/v1/PodMonitor":     func() any { return new(monitoringv1.PodMonitor) },
		"monitoring.coreos.com/v1/PrometheusRule": func() any { return new(monitoringv1.PrometheusRule) },
		"cert-manager.io/v1/Issuer":               func() any { return new(certmanagerv1.Issuer) },
		"cert-manager.io/v1/Certificate":          func() any { return new(certmanagerv1.Certificate) },
	})
}

// release has the objects that the chart makes, by kind and name.
type release map[string]any

// render installs the chart as sluice in the namespace sluice. What the cluster has of the Secret of the webhook is kept.
func render(t *testing.T, values string, kept *corev1.Secret) (release, error) {
	t.Helper()
	loaded, err := loader.Load(chart)
	if err != nil {
		t.Fatal(err)
	}
	var given map[string]any
	if err := yaml.UnmarshalStrict([]byte(values), &given); err != nil {
		t.Fatal(err)
	}
	all, err := util.ToRenderValues(loaded, given, common.ReleaseOptions{Name: "sluice", Namespace: "sluice"}, nil)
	if err != nil {
		return nil, err
	}
	lookup := func(_, kind, namespace, name string) map[string]any {
		found := map[string]any{}
		if kept != nil && kind == "Secret" && namespace == kept.Namespace && name == kept.Name {
			text, _ := yaml.Marshal(kept)
			_ = yaml.Unmarshal(text, &found)
		}
		return found
	}
	files, err := engine.Engine{Strict: true, CustomTemplateFuncs: template.FuncMap{"lookup": lookup}}.Render(loaded, all)
	if err != nil {
		return nil, err
	}
	made := release{}
	for name, file := range files {
		for _, document := range strings.Split("\n"+file, "\n---") {
			if strings.HasSuffix(name, ".yaml") && strings.TrimSpace(document) != "" {
				made.add(t, name, document)
			}
		}
	}
	return made, nil
}

// add decodes a document strictly into the type of its API.
func (r release) add(t *testing.T, file, document string) {
	t.Helper()
	var meta metav1.PartialObjectMetadata
	if err := yaml.Unmarshal([]byte(document), &meta); err != nil {
		t.Fatalf("%s: %v\n%s", file, err, document)
	}
	newObject := kinds[meta.APIVersion+"/"+meta.Kind]
	if newObject == nil {
		t.Fatalf("%s: a kind that this test does not know: %s/%s\n%s", file, meta.APIVersion, meta.Kind, document)
	}
	object, key := newObject(), meta.Kind+" "+meta.Name
	if err := yaml.UnmarshalStrict([]byte(document), object); err != nil {
		t.Errorf("%s: %s: %v\n%s", file, key, err, document)
	}
	if r[key] != nil {
		t.Errorf("%s: %s is made twice", file, key)
	}
	r[key] = object
}

func get[T any](t *testing.T, r release, key string) *T {
	t.Helper()
	object, ok := r[key].(*T)
	if !ok {
		t.Fatalf("there is no %s: %v", key, slices.Sorted(maps.Keys(r)))
	}
	return object
}

const everything = `
image: {registry: registry.example.com, tag: 1.2.3}
imagePullSecrets: [{name: pull}]
controlPlane: {settings: {log-level: debug}}
policies: {list: [{name: "orders.*", publish: {rate: 1000}}], prune: true}
sidecar: {authSecret: orders-sidecar, settings: {lease: 15s, control-plane: "other:18000"}}
monitoring: {enabled: true, labels: {release: prometheus}}
dashboards: {enabled: true}
`

func TestChart(t *testing.T) {
	for name, test := range map[string]struct {
		values string
		kinds  map[string]int
	}{
		"defaults": {"", map[string]int{"ServiceAccount": 2, "Deployment": 2, "Service": 3, "PodDisruptionBudget": 2, "NetworkPolicy": 2,
			"ConfigMap": 1, "Secret": 1, "MutatingWebhookConfiguration": 1}},
		"everything": {everything, map[string]int{"ConfigMap": 3, "Job": 1, "ServiceMonitor": 1, "PodMonitor": 1, "PrometheusRule": 1}},
		"cert-manager": {"injector: {certManager: {enabled: true}}",
			map[string]int{"Issuer": 1, "Certificate": 1, "Secret": 0, "MutatingWebhookConfiguration": 1}},
		"its own issuer": {"injector: {certManager: {enabled: true, issuerRef: {name: x, kind: ClusterIssuer}}}",
			map[string]int{"Issuer": 0, "Certificate": 1}},
		"a control plane alone": {"{injector: {enabled: false}, controlPlane: {replicas: 1}, networkPolicy: {enabled: false}}",
			map[string]int{"ServiceAccount": 1, "Deployment": 1, "Service": 2, "PodDisruptionBudget": 0, "NetworkPolicy": 0, "Secret": 0}},
		"in a mesh": {"{insecure: true, controlPlane: {authSecret: ''}, monitoring: {enabled: true}, policies: {list: [{name: a}]}}",
			map[string]int{"Job": 1, "PodMonitor": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			made, err := render(t, test.values, nil)
			if err != nil {
				t.Fatal(err)
			}
			counts := map[string]int{}
			for key, object := range made {
				kind, _, _ := strings.Cut(key, " ")
				counts[kind]++
				switch o := object.(type) {
				case *appsv1.Deployment:
					checkPod(t, key, made, &o.Spec.Template)
					if !selects(o.Spec.Selector.MatchLabels, o.Spec.Template.Labels) {
						t.Errorf("%s does not select its pods", key)
					}
				case *batchv1.Job:
					checkPod(t, key, made, &o.Spec.Template)
				case *corev1.Service:
					checkService(t, made, o)
				}
			}
			for kind, want := range test.kinds {
				if counts[kind] != want {
					t.Errorf("%d of %s, want %d", counts[kind], kind, want)
				}
			}
		})
	}
}

// TestChartIsLinted finds what helm lint does.
func TestChartIsLinted(t *testing.T) {
	for _, m := range lint.RunAll(chart, nil, "sluice").Messages {
		if m.Severity > support.InfoSev {
			t.Error(m)
		}
	}
}

func selects(selector, labels map[string]string) bool {
	for k, v := range selector {
		if labels[k] != v {
			return false
		}
	}
	return len(selector) > 0
}

// restricted reports what the level "restricted" of Kubernetes' Pod Security Standards refuses in a pod.
func restricted(t *testing.T, meta *metav1.ObjectMeta, spec *corev1.PodSpec) string {
	t.Helper()
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	level := api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}
	result := policy.AggregateCheckResults(evaluator.EvaluatePod(level, meta, spec))
	return result.ForbiddenDetail()
}

// checkPod holds a pod of the chart against the level "restricted", and finds mounts and probes of what there is not.
func checkPod(t *testing.T, key string, made release, pod *corev1.PodTemplateSpec) {
	t.Helper()
	if why := restricted(t, &pod.ObjectMeta, &pod.Spec); why != "" {
		t.Errorf("%s: %s", key, why)
	}
	for _, c := range pod.Spec.Containers {
		if c.SecurityContext.ReadOnlyRootFilesystem == nil || c.Resources.Requests.Cpu().IsZero() || c.Resources.Limits.Memory().IsZero() {
			t.Errorf("%s: the root file system or its resources are not bounded", key)
		}
		for _, m := range c.VolumeMounts {
			if !slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name }) {
				t.Errorf("%s mounts %s, which is no volume", key, m.Name)
			}
		}
		for _, p := range []*corev1.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
			if p != nil && !slices.ContainsFunc(c.Ports, func(port corev1.ContainerPort) bool { return port.Name == p.HTTPGet.Port.StrVal }) {
				t.Errorf("%s: a probe of %v, which is no port", key, p.HTTPGet)
			}
		}
	}
	for _, v := range pod.Spec.Volumes {
		if v.ConfigMap != nil {
			get[corev1.ConfigMap](t, made, "ConfigMap "+v.ConfigMap.Name)
		}
	}
	if name := pod.Spec.ServiceAccountName; name != "" {
		get[corev1.ServiceAccount](t, made, "ServiceAccount "+name)
	}
}

// checkService finds a service that selects no pod, or a port that its pod does not name.
func checkService(t *testing.T, made release, s *corev1.Service) {
	t.Helper()
	for _, object := range made {
		d, ok := object.(*appsv1.Deployment)
		if !ok || !selects(s.Spec.Selector, d.Spec.Template.Labels) {
			continue
		}
		if !slices.ContainsFunc(d.Spec.Template.Spec.Containers[0].Ports, func(p corev1.ContainerPort) bool {
			return p.Name == s.Spec.Ports[0].TargetPort.StrVal
		}) {
			t.Errorf("Service %s: its pods have no port %s", s.Name, s.Spec.Ports[0].TargetPort.StrVal)
		}
		return
	}
	t.Errorf("Service %s selects nothing", s.Name)
}

func TestChartSaysWhatItIsTold(t *testing.T) {
	made, err := render(t, everything, nil)
	if err != nil {
		t.Fatal(err)
	}
	plane := get[appsv1.Deployment](t, made, "Deployment sluice-controlplane").Spec.Template.Spec
	if c := plane.Containers[0]; c.Image != "registry.example.com/sluice-controlplane:1.2.3" || plane.ImagePullSecrets[0].Name != "pull" ||
		!slices.Contains(c.Env, corev1.EnvVar{Name: "SLUICE_LOG_LEVEL", Value: "debug"}) {
		t.Errorf("the control plane: %+v", c)
	}
	settings := get[corev1.ConfigMap](t, made, "ConfigMap sluice-injector").Data["injector.yaml"]
	for _, line := range []string{"image: registry.example.com/sluice-sidecar:1.2.3\n", `auth-secret: "orders-sidecar"`, `  lease: "15s"`,
		`  log-format: "json"`, `  control-plane: "other:18000"`} {
		if !strings.Contains(settings, line) {
			t.Errorf("the injector's settings have no %s:\n%s", line, settings)
		}
	}
	list := get[corev1.ConfigMap](t, made, "ConfigMap sluice-policies").Data["policies.yaml"]
	if strings.TrimSpace(list) != "- name: orders.*\n  publish:\n    rate: 1000" {
		t.Errorf("policies:\n%s", list)
	}
	if args := get[batchv1.Job](t, made, "Job sluice-policies").Spec.Template.Spec.Containers[0].Args; !slices.Contains(args, "--prune") {
		t.Errorf("policies are applied with %q", args)
	}
	rules := get[monitoringv1.PrometheusRule](t, made, "PrometheusRule sluice")
	if len(rules.Spec.Groups) < 3 || rules.Labels["release"] != "prometheus" || rules.Spec.Groups[0].Name != "sluice-percentiles" {
		t.Errorf("rules: %+v", rules)
	}
	if board := get[corev1.ConfigMap](t, made, "ConfigMap sluice-dashboard").Data["sluice.json"]; !strings.Contains(board, `"title": "Sluice"`) {
		t.Errorf("the dashboard: %.100s", board)
	}
}

// TestValuesAreChecked: a misspelt value is refused, and so is one that cannot be.
func TestValuesAreChecked(t *testing.T) {
	for values, want := range map[string]string{
		"controlplane: {}":                      "controlplane",
		"controlPlane: {replica: 3}":            "replica",
		"controlPlane: {replicas: 0}":           "minimum",
		"controlPlane: {authSecret: ''}":        "controlPlane.authSecret: must name a Secret",
		"injector: {failurePolicy: Faill}":      "failurePolicy",
		"sidecar: {memoryLimit: 512}":           "memoryLimit",
		"sidecar: {settings: {lease: [1]}}":     "lease",
		"policies: {list: [{publish: {}}]}":     "name",
		"image: {tag: 1.2}":                     "tag",
		"networkPolicy: {storePorts: [27017x]}": "storePorts",
	} {
		if _, err := render(t, values, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v does not say %s", values, err, want)
		}
	}
}

// TestWebhookIsAskedAboutFewPods: those of the fleet's namespaces with the label.
func TestWebhookIsAskedAboutFewPods(t *testing.T) {
	made, err := render(t, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	w := get[admissionregistrationv1.MutatingWebhookConfiguration](t, made, "MutatingWebhookConfiguration sluice-injector").Webhooks[0]
	namespaces, err := metav1.LabelSelectorAsSelector(w.NamespaceSelector)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := metav1.LabelSelectorAsSelector(w.ObjectSelector)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{
		"sluice=fleet sluice.dev/inject=true": true, "sluice=fleet sluice.dev/inject=yes": true, "sluice=fleet sluice.dev/inject=false": false,
		"sluice=fleet a=b": false, "a=b sluice.dev/inject=true": false,
	} {
		words := strings.Fields(text)
		if got := namespaces.Matches(labelSet(words[0])) && objects.Matches(labelSet(words[1])); got != want {
			t.Errorf("%s: asked %v, want %v", text, got, want)
		}
	}
	if *w.FailurePolicy != admissionregistrationv1.Fail || *w.SideEffects != admissionregistrationv1.SideEffectClassNone {
		t.Errorf("%+v", w)
	}
}

// TestUpgradeKeepsTheAuthority: an API server that has the new configuration trusts pods that still have the old certificate.
func TestUpgradeKeepsTheAuthority(t *testing.T) {
	secret := func(kept *corev1.Secret) (*corev1.Secret, []byte) {
		made, err := render(t, "", kept)
		if err != nil {
			t.Fatal(err)
		}
		s := get[corev1.Secret](t, made, "Secret sluice-injector")
		s.Namespace = "sluice"
		return s, get[admissionregistrationv1.MutatingWebhookConfiguration](t, made,
			"MutatingWebhookConfiguration sluice-injector").Webhooks[0].ClientConfig.CABundle
	}
	first, trusted := secret(nil)
	second, trustedLater := secret(first)
	if !bytes.Equal(trusted, trustedLater) || bytes.Equal(first.Data["tls.crt"], second.Data["tls.crt"]) {
		t.Error("an upgrade makes another authority, or no other certificate")
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(trusted)
	for _, s := range []*corev1.Secret{first, second} {
		block, _ := pem.Decode(s.Data["tls.crt"])
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: "sluice-injector.sluice.svc"}); err != nil {
			t.Error(err)
		}
	}
	if _, err := base64.StdEncoding.DecodeString(fmt.Sprint(first.Data["ca.key"])); err == nil {
		t.Error("the key is encoded twice")
	}
}
