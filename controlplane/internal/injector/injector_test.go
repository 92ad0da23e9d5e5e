package injector

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/test/require"
)

var config = Config{
	Listen: "127.0.0.1:0", Image: "sluice-sidecar:1.0.0", StoreSecret: "sluice-store", AuthSecret: "sluice-auth",
	CPURequest: "100m", MemoryRequest: "64Mi", MemoryLimit: "512Mi",
	Settings: map[string]string{"control-plane": "sluice-xds.sluice.svc:18000", "log-format": "json"},
	Logger:   slog.New(slog.DiscardHandler),
}

// podOf is a pod with the label, annotations as "NAME: VALUE", and the rest of its spec.
func podOf(t *testing.T, spec string, annotations ...string) object {
	t.Helper()
	with := map[string]string{"traffic.sidecar.istio.io/excludeInboundPorts": "8083,7071"}
	for _, a := range annotations {
		name, value, _ := strings.Cut(a, ": ")
		with[prefix+name] = value
	}
	p := object{"metadata": object{"generateName": "orders-7d9f-", "labels": object{injectLabel: "true"}, "annotations": with}}
	var s object
	require.NoError(t, json.Unmarshal([]byte(`{"containers":[{"name":"orders"}]`+spec+`}`), &s))
	p["spec"] = s
	return reencoded(t, p)
}

func reencoded(t *testing.T, v any) (o object) {
	t.Helper()
	text, err := json.Marshal(v)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &o))
	return o
}

// injected is the pod as the API server makes it of the answer, and the warnings.
func injected(t *testing.T, c Config, p object) (object, []string, error) {
	t.Helper()
	text, err := json.Marshal(p)
	require.NoError(t, err)
	var read pod
	require.NoError(t, json.Unmarshal(text, &read))
	ops, warnings, err := c.inject(&read)
	for _, op := range ops {
		var value any
		text, marshalErr := json.Marshal(op.Value)
		require.NoError(t, marshalErr)
		require.NoError(t, json.Unmarshal(text, &value))
		add(t, p, strings.Split(op.Path, "/")[1:], value)
	}
	return p, warnings, err
}

// add is RFC 6902's, of a path whose lists are at its end.
func add(t *testing.T, in object, path []string, value any) {
	t.Helper()
	for len(path) > 1 {
		if list, ok := in[path[0]].([]any); ok {
			at := len(list)
			if path[1] != "-" {
				n, err := strconv.Atoi(path[1])
				require.NoError(t, err)
				at = n
			}
			in[path[0]] = slices.Insert(list, at, value)
			return
		}
		inner, ok := in[path[0]].(object)
		if !ok {
			t.Fatalf("the patch adds to %q, which the pod does not have", path[0])
		}
		in, path = inner, path[1:]
	}
	in[path[0]] = value
}

// at is what is under the keys, one in the other; in a list a number or the name of a member.
func at(v any, keys ...string) any {
	for _, key := range keys {
		switch in := v.(type) {
		case object:
			v = in[key]
		case []any:
			v = nil
			for i, member := range in {
				if key == strconv.Itoa(i) || at(member, "name") == key {
					v = member
				}
			}
		default:
			return nil
		}
	}
	return v
}

func wantAt(t *testing.T, p object, path string, want any) {
	t.Helper()
	if got := at(p, strings.Split(path, " ")...); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s is %v, want %v", path, got, want)
	}
}

const sidecar = "spec initContainers 0 "

func TestDeploymentsPod(t *testing.T) {
	p, warnings, err := injected(t, config, podOf(t, `,"initContainers":[{"name":"migrate"}]`))
	require.NoError(t, err)
	if len(warnings) != 1 || !strings.Contains(warnings[0], "no volume sluice-data") {
		t.Errorf("warnings: %q", warnings)
	}
	for path, want := range map[string]any{
		"metadata labels sluice": "sidecar", "metadata annotations traffic.sidecar.istio.io/excludeInboundPorts": "8083,7071",
		sidecar + "name": containerName, sidecar + "restartPolicy": "Always", "spec initContainers 1 name": "migrate",
		sidecar + "startupProbe httpGet":              "map[path:/readyz port:sluice-ops scheme:HTTPS]",
		sidecar + "env SLUICE_NODE_ID":                "map[name:SLUICE_NODE_ID value:$(POD_NAMESPACE).$(POD_NAME)]",
		sidecar + "env SLUICE_REPLAY_ADVERTISE value": "$(POD_IP):8083", sidecar + "env SLUICE_SPOOL_MAX_BYTES value": "0",
		sidecar + "env SLUICE_CONTROL_PLANE value": "sluice-xds.sluice.svc:18000", sidecar + "env GOMEMLIMIT value": "460MiB",
		sidecar + "envFrom":                      "[map[secretRef:map[name:sluice-store]]]",
		sidecar + "volumeMounts 0 mountPath":     "/var/lib/sluice",
		"spec volumes sluice-data emptyDir":      "map[sizeLimit:1Gi]",
		"spec volumes sluice-auth secret":        "map[defaultMode:288 secretName:sluice-auth]",
		"spec securityContext fsGroup":           "65532",
		sidecar + "securityContext runAsUser":    "65532",
		sidecar + "resources limits":             "map[memory:512Mi]",
		"spec containers 0":                      "map[name:orders]",
		sidecar + "env SLUICE_AUTH_CONFIG value": "/etc/sluice/auth.yaml",
	} {
		wantAt(t, p, path, want)
	}
	before := reencoded(t, p)
	if again, warnings, err := injected(t, config, p); err != nil || len(warnings) > 0 || fmt.Sprint(again) != fmt.Sprint(before) {
		t.Errorf("asked again, it says %v %q, and makes %v", err, warnings, again)
	}
}

// TestVolumeThatOutlivesThePod: a StatefulSet's pod has a claim and a name in DNS, and spools.
func TestVolumeThatOutlivesThePod(t *testing.T) {
	const spec = `,"hostname":"orders-0","subdomain":"orders-sidecar","securityContext":{"fsGroup":1000,"runAsUser":1000},
		"volumes":[{"name":"%s","%s":{"claimName":"x"}}]`
	claim := func(name string) string { return fmt.Sprintf(spec, name, "persistentVolumeClaim") }
	for name, test := range map[string]struct {
		spec, bytes string
		annotations []string
	}{
		"the default name":    {claim("sluice-data"), "<nil>", nil},
		"another name":        {claim("data"), "<nil>", []string{"data-volume: data"}},
		"ephemeral":           {fmt.Sprintf(spec, "sluice-data", "ephemeral"), "0", nil},
		"not the sidecar's":   {claim("other"), "0", nil},
		"its author's choice": {fmt.Sprintf(spec, "sluice-data", "ephemeral"), "1000", []string{"spool-max-bytes: 1000"}},
	} {
		t.Run(name, func(t *testing.T) {
			p, warnings, err := injected(t, config, podOf(t, test.spec, test.annotations...))
			require.NoError(t, err)
			wantAt(t, p, sidecar+"env SLUICE_SPOOL_MAX_BYTES value", test.bytes)
			wantAt(t, p, sidecar+"env SLUICE_REPLAY_ADVERTISE value", "orders-0.orders-sidecar.$(POD_NAMESPACE).svc:8083")
			wantAt(t, p, "spec securityContext", "map[fsGroup:1000 runAsUser:1000]")
			if mounted := at(p, strings.Split(sidecar+"volumeMounts 0 name", " ")...).(string); at(p, "spec", "volumes", mounted) == nil {
				t.Errorf("it mounts %s, which is no volume", mounted)
			}
			if (len(warnings) > 0) != (test.bytes == "0") {
				t.Errorf("warnings: %q", warnings)
			}
		})
	}
}

func TestAnnotations(t *testing.T) {
	p, warnings, err := injected(t, config, podOf(t, `,"terminationGracePeriodSeconds":20`, "log-level: debug", "drain-timeout: 20s",
		"image: mirror/sidecar@sha256:ab", "memory-limit: 1Gi", "config-map: orders-push", "store-secret: orders-store", "insecure: true",
		"dapr-app: http://127.0.0.1:8080"))
	require.NoError(t, err)
	for path, want := range map[string]any{
		"env SLUICE_LOG_LEVEL value": "debug", "env SLUICE_DAPR_APP value": "http://127.0.0.1:8080", "image": "mirror/sidecar@sha256:ab",
		"resources limits memory": "1Gi", "env GOMEMLIMIT value": "921MiB", "readinessProbe httpGet scheme": "HTTP",
		"volumeMounts sluice-config mountPath": "/etc/sluice-config", "envFrom 0 secretRef name": "orders-store",
	} {
		wantAt(t, p, sidecar+path, want)
	}
	wantAt(t, p, "spec volumes sluice-config configMap name", "orders-push")
	if len(warnings) != 2 || !strings.Contains(warnings[1], "(20s)") {
		t.Errorf("warnings: %q", warnings)
	}
	if len(config.Settings) != 2 {
		t.Errorf("the annotations of a pod are the defaults of the next: %v", config.Settings)
	}
}

func TestRefusals(t *testing.T) {
	for _, test := range []struct{ annotation, want string }{
		{"log-levl: debug", `there is no such setting (did you mean "log-level"?)`},
		{"memory-limits: 1Gi", `there is no such setting (did you mean "memory-limit"?)`},
		{"log-level: debgu", `must be one of debug, info, warn, error, not "debgu" (did you mean "debug"?)`},
		{"drain-timeout: 15", `must be a duration such as 15s or 2m, not "15"`},
		{"insecure: yes", `must be true or false, not "yes"`},
		{"max-connections: 0", `must be a whole number of at least 1, not "0"`},
		{"memory-limit: lots", `"lots" must be a number of Mi or Gi, such as 64Mi`},
		{"store: mongodb://u:p@db", "may have a password: it is in the Secret of sluice.dev/store-secret, as SLUICE_STORE"},
		{"data-volume: dta", `the pod has no volume "dta" (did you mean "data"?)`},
		{"inject: true", "is a label, not an annotation"},
	} {
		_, _, err := injected(t, config, podOf(t, `,"volumes":[{"name":"data"}]`, test.annotation))
		name, _, _ := strings.Cut(test.annotation, ":")
		if want := "annotation " + prefix + name + ": " + test.want; err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	noAuth, noStore := config, config
	noAuth.AuthSecret, noStore.StoreSecret = "", ""
	for want, test := range map[string]struct {
		config Config
		pod    object
	}{
		"annotation sluice.dev/lease: must be a duration such as 15s or 2m, not \"x\"; annotation sluice.dev/node-id: is made of": {
			config, podOf(t, "", "node-id: x", "lease: x")},
		"a pod with hostNetwork gets no sidecar":        {config, podOf(t, `,"hostNetwork":true`)},
		"annotation sluice.dev/auth-secret is missing":  {noAuth, podOf(t, "")},
		"annotation sluice.dev/store-secret is missing": {noStore, podOf(t, "")},
	} {
		if _, _, err := injected(t, test.config, test.pod); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestPodsThatAskForNone(t *testing.T) {
	for label, refused := range map[string]bool{"": false, "false": false, "yes": true} {
		p := podOf(t, "")
		if labels := p["metadata"].(object)["labels"].(object); label == "" {
			delete(labels, injectLabel)
		} else {
			labels[injectLabel] = label
		}
		before := fmt.Sprint(p)
		if after, warnings, err := injected(t, config, p); (err != nil) != refused || len(warnings) > 0 || fmt.Sprint(after) != before {
			t.Errorf("label %q: %v %v %v", label, err, warnings, after)
		}
	}
}

func TestConfigIsChecked(t *testing.T) {
	c := Config{Image: "a b", MemoryLimit: "5", Settings: map[string]string{"lease": "x", "lstn": "y"}, TLSCert: "c"}
	err := c.Validate()
	for _, want := range []string{"tls-key: must not be empty", `image: "a b"`, `memory-limit: "5"`, "lease: must be a duration", "lstn"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %s", err, want)
		}
	}
}
