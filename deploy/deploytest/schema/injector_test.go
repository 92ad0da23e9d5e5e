package schema

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// labelSet is one label.
func labelSet(text string) labels.Set {
	name, value, _ := strings.Cut(text, "=")
	return labels.Set{name: value}
}

// apiServer asks the webhook as the configuration says.
type apiServer struct {
	client *http.Client
	url    string
}

// newAPIServer starts the injector with the settings and the certificate of the chart.
func newAPIServer(t *testing.T, values string) apiServer {
	t.Helper()
	made, err := render(t, values, nil)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	secret := get[corev1.Secret](t, made, "Secret sluice-injector")
	settings := get[corev1.ConfigMap](t, made, "ConfigMap sluice-injector").Data["injector.yaml"]
	listen := start(t, nil, "./controlplane/cmd/sluice-injector", "--config", write("injector.yaml", []byte(settings)), "--listen", "127.0.0.1:0",
		"--tls-cert", write("tls.crt", secret.Data["tls.crt"]), "--tls-key", write("tls.key", secret.Data["tls.key"]))
	config := get[admissionregistrationv1.MutatingWebhookConfiguration](t, made, "MutatingWebhookConfiguration sluice-injector").Webhooks[0].ClientConfig
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(config.CABundle)
	transport := &http.Transport{TLSClientConfig: &tls.Config{
		RootCAs: roots, ServerName: config.Service.Name + "." + config.Service.Namespace + ".svc",
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return apiServer{&http.Client{Transport: transport}, "https://" + listen + *config.Service.Path + "?timeout=5s"}
}

// start builds and starts a program of the workspace with these variables and no others, and returns where it listens once it is ready.
func start(t *testing.T, env []string, pkg string, args ...string) (listen string) {
	t.Helper()
	program := filepath.Join(t.TempDir(), filepath.Base(pkg))
	build := exec.Command("go", "build", "-trimpath", "-o", program, pkg)
	build.Dir, build.Env = "../../..", append(os.Environ(), "GOWORK=", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	process := exec.CommandContext(t.Context(), program, args...)
	process.Env, process.Stderr = append(env, "HOME="+t.TempDir()), t.Output()
	out, err := process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = process.Process.Signal(os.Interrupt), process.Wait() })
	line, err := bufio.NewReader(out).ReadBytes('\n')
	var ready struct{ Listen string }
	if err != nil || json.Unmarshal(line, &ready) != nil {
		t.Fatalf("it says %q, %v", line, err)
	}
	return ready.Listen
}

// create asks about a pod, and returns what becomes of it.
func (s apiServer) create(t *testing.T, pod *corev1.Pod, dryRun bool) (*corev1.Pod, *admissionv1.AdmissionResponse) {
	t.Helper()
	pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	object, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	kind, resource := metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}, metav1.GroupVersionResource{Version: "v1", Resource: "pods"}
	question, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "705ab4f5-6393-11e8-b7cc-42010a800002", Kind: kind, Resource: resource, RequestKind: &kind, RequestResource: &resource,
			Name: pod.Name, Namespace: "shop", Operation: admissionv1.Create, DryRun: &dryRun, Object: runtime.RawExtension{Raw: object},
			Options: runtime.RawExtension{Raw: []byte(`{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1"}`)},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := s.client.Post(s.url, "application/json", bytes.NewReader(question))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var review admissionv1.AdmissionReview
	strict := json.NewDecoder(answer.Body)
	strict.DisallowUnknownFields()
	if err := strict.Decode(&review); err != nil || answer.StatusCode != 200 || review.Response == nil {
		t.Fatalf("%d %v", answer.StatusCode, err)
	}
	if len(review.Response.Patch) == 0 {
		return pod, review.Response
	}
	if *review.Response.PatchType != admissionv1.PatchTypeJSONPatch {
		t.Fatalf("a patch of type %s", *review.Response.PatchType)
	}
	patch, err := jsonpatch.DecodePatch(review.Response.Patch)
	if err != nil {
		t.Fatal(err)
	}
	object, err = patch.Apply(object)
	if err != nil {
		t.Fatalf("%v: %s", err, review.Response.Patch)
	}
	var patched corev1.Pod
	if err := yaml.UnmarshalStrict(object, &patched); err != nil {
		t.Fatalf("%v\n%s", err, object)
	}
	return &patched, review.Response
}

// example is the pod of the StatefulSet of deploy/kubernetes, as its controller makes it, without the sidecar that it has there.
func example(t *testing.T) *corev1.Pod {
	t.Helper()
	text, err := os.ReadFile("../../kubernetes/example/app.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, document := range strings.Split(string(text), "\n---\n") {
		var set appsv1.StatefulSet
		if err := yaml.Unmarshal([]byte(document), &set); err != nil || set.Kind != "StatefulSet" {
			continue
		}
		pod := &corev1.Pod{ObjectMeta: set.Spec.Template.ObjectMeta, Spec: set.Spec.Template.Spec}
		pod.Name, pod.Spec.Hostname, pod.Spec.Subdomain = "orders-0", "orders-0", set.Spec.ServiceName
		pod.Spec.InitContainers = nil
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "sluice-data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "sluice-data-orders-0"},
		}})
		pod.Labels["sluice.dev/inject"] = "true"
		pod.Annotations = map[string]string{"traffic.sidecar.istio.io/excludeInboundPorts": "8083,7071"}
		return pod
	}
	t.Fatal("there is no StatefulSet in app.yaml")
	return nil
}

// TestInjectedPods: a real AdmissionReview about a real pod, and the pod that comes out is one of Kubernetes' API, and restricted.
func TestInjectedPods(t *testing.T) {
	s := newAPIServer(t, everything)
	isController := true
	for name, change := range map[string]func(*corev1.Pod){
		"a StatefulSet's": func(*corev1.Pod) {},
		"a Deployment's, without a volume": func(p *corev1.Pod) {
			p.Name, p.GenerateName, p.Spec.Hostname, p.Spec.Subdomain, p.Spec.Volumes = "", "orders-7d9f-", "", "", p.Spec.Volumes[:2]
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "orders-7d9f", UID: "1", Controller: &isController}}
		},
		"one with other init containers": func(p *corev1.Pod) {
			migrate := p.Spec.Containers[0]
			migrate.Name, migrate.Ports = "migrate", nil
			p.Spec.InitContainers = []corev1.Container{migrate}
		},
		"one without volumes and security context": func(p *corev1.Pod) {
			own := p.Spec.SecurityContext
			p.Spec.Volumes, p.Spec.SecurityContext = nil, nil
			c := &p.Spec.Containers[0]
			c.VolumeMounts, c.SecurityContext.RunAsNonRoot, c.SecurityContext.SeccompProfile = nil, own.RunAsNonRoot, own.SeccompProfile
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := example(t)
			change(before)
			keeps := slices.ContainsFunc(before.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == "sluice-data" })
			after, answer := s.create(t, before.DeepCopy(), name == "a StatefulSet's")
			if !answer.Allowed || len(after.Spec.InitContainers) != len(before.Spec.InitContainers)+1 || (len(answer.Warnings) > 0) == keeps {
				t.Fatalf("%+v %+v", answer, after.Spec.InitContainers)
			}
			c := after.Spec.InitContainers[0]
			if c.Name != "sluice-sidecar" || *c.RestartPolicy != corev1.ContainerRestartPolicyAlways || c.StartupProbe == nil {
				t.Errorf("the first init container is %+v", c)
			}
			if why := restricted(t, &after.ObjectMeta, &after.Spec); why != "" {
				t.Error(why)
			}
			if after.Labels["sluice"] != "sidecar" || after.Annotations["traffic.sidecar.istio.io/excludeInboundPorts"] == "" {
				t.Errorf("labels %v, annotations %v", after.Labels, after.Annotations)
			}
			if nothing := slices.Contains(c.Env, corev1.EnvVar{Name: "SLUICE_SPOOL_MAX_BYTES", Value: "0"}); nothing == keeps {
				t.Errorf("spools nothing: %v", nothing)
			}
			checkPod(t, name, nil, &corev1.PodTemplateSpec{ObjectMeta: after.ObjectMeta, Spec: corev1.PodSpec{
				SecurityContext: after.Spec.SecurityContext, Containers: []corev1.Container{c}, Volumes: after.Spec.Volumes,
			}})
			if again, answer := s.create(t, after.DeepCopy(), false); !answer.Allowed || len(answer.Patch) > 0 || len(again.Spec.InitContainers) !=
				len(after.Spec.InitContainers) {
				t.Errorf("asked again: %+v", answer)
			}
		})
	}
	wrong := example(t)
	wrong.Annotations["sluice.dev/drain-time"] = "20s"
	if _, answer := s.create(t, wrong, false); answer.Allowed || answer.Result.Code != 422 ||
		!strings.Contains(answer.Result.Message, `sluice.dev/drain-time: there is no such setting (did you mean "drain-timeout"?)`) {
		t.Errorf("%+v %+v", answer, answer.Result)
	}
}

// TestInjectedSidecarStarts: the real program starts with the variables of the container, and the files of the example's Secrets.
func TestInjectedSidecarStarts(t *testing.T) {
	pod := example(t)
	pod.Spec.Volumes = nil
	injected, answer := newAPIServer(t, everything).create(t, pod, false)
	if !answer.Allowed {
		t.Fatal(answer.Result)
	}
	env, known := []string{"SLUICE_STORE=embedded:"}, map[string]string{}
	for _, v := range injected.Spec.InitContainers[0].Env {
		if v.ValueFrom != nil {
			known[v.Name] = map[string]string{"POD_NAME": "orders-0", "POD_NAMESPACE": "shop", "POD_IP": "10.0.0.7"}[v.Name]
			continue
		}
		for name, value := range known {
			v.Value = strings.ReplaceAll(v.Value, "$("+name+")", value)
		}
		if strings.Contains(v.Value, "$(") {
			t.Errorf("%s refers to what stands behind it: %s", v.Name, v.Value)
		}
		env = append(env, v.Name+"="+v.Value)
	}
	secrets, mounted := filepath.Join(deploy(t), "kubernetes/example/secrets"), t.TempDir()
	for name, file := range map[string]string{
		"auth.yaml": "orders-auth.yaml", "tls.pem": "orders.pem", "tls.key": "orders.key", "sidecar": "orders-sidecar", "ca.pem": "ca.pem",
	} {
		if err := os.Link(filepath.Join(secrets, file), filepath.Join(mounted, name)); err != nil {
			t.Fatal(err)
		}
	}
	start(t, env, "./sidecar/cmd/sluice-sidecar", "--data-dir", t.TempDir(), "--listen", "127.0.0.1:0", "--replay-listen", ":0", "--ops-listen", ":0",
		"--auth-config", filepath.Join(mounted, "auth.yaml"))
}
