package deploytest

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// kustomizations are the folders that have one: the control plane, and an application on top of it.
var kustomizations = []string{"kubernetes/base/", "kubernetes/example/"}

// kustomization has the lists of all of them, one after another.
func kustomization(t *testing.T) object {
	t.Helper()
	all := object{}
	for _, folder := range kustomizations {
		for key, value := range documents(t, read(t, folder+"kustomization.yaml"))[0] {
			all[key] = append(list(all[key]), list(value)...)
		}
	}
	return all
}

// manifests are the objects of the resources that the kustomizations name.
func manifests(t *testing.T) (all []object) {
	t.Helper()
	for _, folder := range kustomizations {
		for _, r := range list(documents(t, read(t, folder+"kustomization.yaml"))[0]["resources"]) {
			if strings.HasSuffix(text(r), ".yaml") {
				all = append(all, documents(t, read(t, folder+text(r)))...)
			}
		}
	}
	return all
}

// manifest is the object of that kind and name.
func manifest(t *testing.T, kind, name string) object {
	t.Helper()
	for _, m := range manifests(t) {
		if m["kind"] == kind && at(m, "metadata", "name") == name {
			return m
		}
	}
	t.Fatalf("there is no %s %s", kind, name)
	return nil
}

func sidecarContainer(t *testing.T) (container, pod object) {
	t.Helper()
	pod = at(manifest(t, "StatefulSet", "orders"), "spec", "template", "spec").(object)
	return list(pod["initContainers"])[0].(object), pod
}

func application(t *testing.T) object {
	t.Helper()
	_, pod := sidecarContainer(t)
	return list(pod["containers"])[0].(object)
}

func controlPlaneContainer(t *testing.T) object {
	t.Helper()
	pod := at(manifest(t, "Deployment", "sluice-controlplane"), "spec", "template", "spec")
	return list(at(pod, "containers"))[0].(object)
}

// TestPodsAreRestricted holds each container against what the namespace's level of pod security
// asks for, and a little more.
func TestPodsAreRestricted(t *testing.T) {
	if level := at(manifest(t, "Namespace", "sluice"), "metadata", "labels", "pod-security.kubernetes.io/enforce"); level != "restricted" {
		t.Errorf("pod security is %v", level)
	}
	for _, m := range manifests(t) {
		pod, ok := at(m, "spec", "template", "spec").(object)
		if !ok {
			continue
		}
		name := text(at(m, "metadata", "name"))
		user, number := at(pod, "securityContext", "runAsUser").(int)
		if at(pod, "securityContext", "runAsNonRoot") != true || !number || user == 0 ||
			at(pod, "securityContext", "seccompProfile", "type") != "RuntimeDefault" {
			t.Errorf("%s: %v", name, pod["securityContext"])
		}
		if pod["enableServiceLinks"] != false || pod["automountServiceAccountToken"] != false || pod["serviceAccountName"] == nil {
			t.Errorf("%s: is given more of the cluster than it needs", name)
		}
		for _, c := range append(list(pod["initContainers"]), list(pod["containers"])...) {
			s := at(c, "securityContext")
			if at(s, "allowPrivilegeEscalation") != false || at(s, "readOnlyRootFilesystem") != true ||
				fmt.Sprint(at(s, "capabilities", "drop")) != "[ALL]" {
				t.Errorf("%s %v: %v", name, at(c, "name"), s)
			}
			if at(c, "resources", "limits", "memory") == nil || at(c, "resources", "requests", "cpu") == nil {
				t.Errorf("%s %v: resources %v", name, at(c, "name"), at(c, "resources"))
			}
			checkMounts(t, name, pod, at(m, "spec"), c)
			checkProbes(t, name, c)
		}
	}
}

// checkMounts finds a mount of a volume that is not there.
func checkMounts(t *testing.T, name string, pod object, spec, container any) {
	t.Helper()
	var volumes []any
	for _, v := range list(pod["volumes"]) {
		volumes = append(volumes, at(v, "name"))
	}
	for _, v := range list(at(spec, "volumeClaimTemplates")) {
		volumes = append(volumes, at(v, "metadata", "name"))
	}
	for _, m := range list(at(container, "volumeMounts")) {
		if !slices.Contains(volumes, at(m, "name")) {
			t.Errorf("%s %v: no volume %v", name, at(container, "name"), at(m, "name"))
		}
	}
}

// checkProbes finds a probe of a port that the container does not name, or of a path that the
// programs do not have.
func checkProbes(t *testing.T, name string, container any) {
	t.Helper()
	var ports []any
	for _, p := range list(at(container, "ports")) {
		ports = append(ports, at(p, "name"))
	}
	for kind, path := range map[string]string{"startupProbe": "", "livenessProbe": "/healthz", "readinessProbe": "/readyz"} {
		get, ok := at(container, kind, "httpGet").(object)
		if !ok {
			continue
		}
		if !slices.Contains(ports, get["port"]) || path != "" && get["path"] != path || path == "" &&
			!slices.Contains([]any{"/healthz", "/readyz"}, get["path"]) {
			t.Errorf("%s %v: %s %v", name, at(container, "name"), kind, get)
		}
	}
}

func TestSidecarIsNative(t *testing.T) {
	c, pod := sidecarContainer(t)
	if c["restartPolicy"] != "Always" || c["startupProbe"] == nil {
		t.Errorf("restartPolicy %v, startupProbe %v", c["restartPolicy"], c["startupProbe"])
	}
	// --drain-timeout has to fit into what the pod is given.
	drain := literal(t, "sluice-sidecar", "SLUICE_DRAIN_TIMEOUT")
	if grace := pod["terminationGracePeriodSeconds"].(int); drain != "15s" || grace < 30 {
		t.Errorf("--drain-timeout %s within %d s", drain, grace)
	}
	if data := at(list(c["volumeMounts"])[0], "mountPath"); data != "/var/lib/sluice" { // the images' SLUICE_DATA_DIR
		t.Errorf("the volume is at %v", data)
	}
}

// TestSidecarHasItsOwn: its credential is for its own pods, others reach it by a name that its
// certificate has, its database user is not the control plane's, and only pods of the fleet's
// namespaces reach its replay listener and the control plane.
func TestSidecarHasItsOwn(t *testing.T) {
	c, pod := sidecarContainer(t)
	set := map[string]string{}
	for _, e := range list(c["env"]) {
		set[text(at(e, "name"))] = text(at(e, "value"))
	}
	node := strings.NewReplacer("$(POD_NAMESPACE)", "sluice", "$(POD_NAME)", "orders-0")
	dns, _, _ := strings.Cut(node.Replace(set["SLUICE_REPLAY_ADVERTISE"]), ":")
	if node.Replace(set["SLUICE_NODE_ID"]) != "sluice.orders-0" || dns != "orders-0.orders-sidecar.sluice.svc" ||
		!strings.Contains(read(t, "kubernetes/example/kustomization.yaml"), "'orders:sluice.orders-*:*.orders-sidecar.sluice.svc'") ||
		at(manifest(t, "StatefulSet", "orders"), "spec", "serviceName") != "orders-sidecar" ||
		at(manifest(t, "Service", "orders-sidecar"), "spec", "publishNotReadyAddresses") != true {
		t.Errorf("node id %s at %s", set["SLUICE_NODE_ID"], dns)
	}
	for _, v := range list(pod["volumes"]) {
		if name := text(at(v, "secret", "secretName")); name != "orders-sidecar" && name != "orders-token" {
			t.Errorf("the pod has the secret %s", name)
		}
	}
	store := func(container object) (names []string) {
		for _, from := range list(container["envFrom"]) {
			names = append(names, text(at(from, "secretRef", "name")))
		}
		return names
	}
	if slices.Contains(store(c), "sluice-controlplane-store") ||
		!slices.Contains(store(controlPlaneContainer(t)), "sluice-controlplane-store") {
		t.Errorf("the sidecar's stores: %v", store(c))
	}
	if at(manifest(t, "Namespace", "sluice"), "metadata", "labels", "sluice") != "fleet" {
		t.Error("the namespace is not of the fleet")
	}
	for _, policy := range []string{"sluice-sidecar", "sluice-controlplane"} {
		for _, rule := range list(at(manifest(t, "NetworkPolicy", policy), "spec", "ingress")) {
			for _, from := range list(at(rule, "from")) {
				if labels, _ := at(from, "namespaceSelector", "matchLabels").(object); len(labels) == 0 {
					t.Errorf("%s lets in pods of every namespace: %v", policy, from)
				}
			}
		}
	}
	for _, each := range []object{c, controlPlaneContainer(t)} {
		for _, probe := range []string{"startupProbe", "livenessProbe", "readinessProbe"} {
			if at(each, probe, "httpGet", "scheme") != "HTTPS" {
				t.Errorf("%v: the %s asks without TLS", each["name"], probe)
			}
		}
	}
}

// literal is a setting of a generated ConfigMap.
func literal(t *testing.T, configMap, variable string) string {
	t.Helper()
	for _, g := range list(kustomization(t)["configMapGenerator"]) {
		for _, l := range list(at(g, "literals")) {
			if name, value, _ := strings.Cut(text(l), "="); at(g, "name") == configMap && name == variable {
				return value
			}
		}
	}
	t.Fatalf("ConfigMap %s has no %s", configMap, variable)
	return ""
}

// TestKubernetesPorts holds containers, services, policies and discovery against the listeners.
func TestKubernetesPorts(t *testing.T) {
	listen := func(configMap, variable string) string {
		value := literal(t, configMap, variable)
		return value[strings.LastIndex(value, ":")+1:]
	}
	sidecar, _ := sidecarContainer(t)
	want := map[string]string{
		"sluice-replay": listen("sluice-sidecar", "SLUICE_REPLAY_LISTEN"),
		"sluice-ops":    listen("sluice-sidecar", "SLUICE_OPS_LISTEN"),
		"xds":           listen("sluice-controlplane", "SLUICE_XDS_LISTEN"),
		"http":          listen("sluice-controlplane", "SLUICE_HTTP_LISTEN"),
	}
	for _, p := range append(list(sidecar["ports"]), list(controlPlaneContainer(t)["ports"])...) {
		if name := text(at(p, "name")); fmt.Sprint(at(p, "containerPort")) != want[name] {
			t.Errorf("%s: %v, and the listener has %s", name, p, want[name])
		}
	}
	xds := fmt.Sprint(at(list(at(manifest(t, "Service", "sluice-controlplane-xds"), "spec", "ports"))[0], "port"))
	if cp := literal(t, "sluice-sidecar", "SLUICE_CONTROL_PLANE"); cp != "sluice-controlplane-xds.sluice.svc:"+xds || xds != want["xds"] {
		t.Errorf("sidecars look for the control plane at %s", cp)
	}
	for policy, ports := range map[string][]string{
		"sluice-sidecar": {want["sluice-replay"], want["sluice-ops"]}, "sluice-controlplane": {want["xds"], want["http"]},
	} {
		var got []string
		for _, rule := range list(at(manifest(t, "NetworkPolicy", policy), "spec", "ingress")) {
			got = append(got, fmt.Sprint(at(list(at(rule, "ports"))[0], "port")))
		}
		if !slices.Equal(got, ports) {
			t.Errorf("NetworkPolicy %s lets in %v, and the listeners are %v", policy, got, ports)
		}
	}
	for _, name := range []string{"sluice-ops", "http"} {
		if !strings.Contains(read(t, "prometheus/kubernetes.yml"), "regex: "+name+",") {
			t.Errorf("prometheus/kubernetes.yml does not look for the port %s", name)
		}
	}
}

// TestLabels finds selectors that select nothing.
func TestLabels(t *testing.T) {
	var labels []string
	for _, m := range manifests(t) {
		l, _ := at(m, "spec", "template", "metadata", "labels").(object)
		for k, v := range l {
			labels = append(labels, k+"="+text(v))
		}
	}
	for _, m := range manifests(t) {
		selector, _ := at(m, "spec", "selector").(object)
		if inner, ok := at(m, "spec", "selector", "matchLabels").(object); ok {
			selector = inner
		} else if inner, ok := at(m, "spec", "podSelector", "matchLabels").(object); ok {
			selector = inner
		}
		for k, v := range selector {
			if !slices.Contains(labels, k+"="+text(v)) {
				t.Errorf("%v %v selects %s=%v, which no pod has", m["kind"], at(m, "metadata", "name"), k, v)
			}
		}
	}
	discovered := regexp.MustCompile(`pod_label_sluice\], regex: (\w+)`).FindAllStringSubmatch(read(t, "prometheus/kubernetes.yml"), -1)
	if len(discovered) != 2 {
		t.Fatalf("prometheus/kubernetes.yml discovers %v", discovered)
	}
	for _, d := range discovered {
		if !slices.Contains(labels, "sluice="+d[1]) {
			t.Errorf("prometheus/kubernetes.yml looks for pods with sluice=%s", d[1])
		}
	}
}
