package injector

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire/nearest"
)

const (
	containerName = "sluice-sidecar"
	dataVolume    = "sluice-data"
	user          = 65532 // of the images

	// The defaults of Kubernetes and of --drain-timeout.
	gracePeriod  = 30 * time.Second
	drainTimeout = 15 * time.Second
)

// object is one of JSON.
type object = map[string]any

// operation is one of a JSON Patch (RFC 6902). Each of them adds.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// inject returns what adds a sidecar to a pod that asks for one and has none, and what its author should know. The error is
// for the pod's author, too: why it gets none.
func (c Config) inject(p *pod) (patch []operation, warnings []string, err error) {
	switch value, asks := p.Metadata.Labels[injectLabel]; {
	case !asks || value == "false":
		return nil, nil, nil
	case value != "true":
		return nil, nil, fmt.Errorf(`label %s: must be "true" or "false", not %q`, injectLabel, value)
	case p.hasSidecar():
		return nil, nil, nil
	}
	o, err := c.defaults().annotated(p.Metadata.Annotations)
	if err != nil {
		return nil, nil, err
	}
	if o.dataVolume != "" && p.volume(o.dataVolume) == nil {
		var names []string
		for _, v := range p.Spec.Volumes {
			names = append(names, v.Name)
		}
		return nil, nil, fmt.Errorf("annotation %sdata-volume: the pod has no volume %q%s",
			prefix, o.dataVolume, nearest.Known(o.dataVolume, names))
	}
	o.dataVolume = cmp.Or(o.dataVolume, dataVolume)
	v := p.volume(o.dataVolume)
	outlives := v != nil && v.PersistentVolumeClaim != nil
	switch {
	case p.Spec.HostNetwork:
		return nil, nil, errors.New("a pod with hostNetwork gets no sidecar: everybody on the node would reach its loopback address")
	case o.authSecret == "" && o.flags["insecure"] != "true":
		return nil, nil, fmt.Errorf("annotation %[1]sauth-secret is missing: other machines reach the sidecar's replay and ops listeners; "+
			"name a Secret with auth.yaml, or set %[1]sinsecure to true where the network encrypts and authenticates by itself", prefix)
	case o.storeSecret == "" && !outlives:
		return nil, nil, fmt.Errorf("annotation %sstore-secret is missing: the log would be in the pod's volume, and the pod has no volume %s "+
			"of a persistentVolumeClaim that outlives it", prefix, o.dataVolume)
	}
	if _, set := o.flags["spool-max-bytes"]; !set && !outlives {
		o.flags["spool-max-bytes"] = "0"
		warnings = append(warnings, fmt.Sprintf("sluice: the pod has no volume %s of a persistentVolumeClaim that outlives it: "+
			"while the store is away, its sidecar refuses publishes instead of spooling them", o.dataVolume))
	}
	warnings = append(warnings, shortGrace(p, o)...)
	return p.patch(o, v == nil), warnings, nil
}

// shortGrace warns of a pod that is ended before its sidecar has drained.
func shortGrace(p *pod, o options) []string {
	grace, drain := gracePeriod, drainTimeout
	if s := p.Spec.TerminationGracePeriodSeconds; s != nil {
		grace = time.Duration(*s) * time.Second
	}
	if d, err := time.ParseDuration(o.flags["drain-timeout"]); err == nil {
		drain = d
	}
	if grace > drain {
		return nil
	}
	return []string{fmt.Sprintf("sluice: terminationGracePeriodSeconds (%v) is for the application and then for its sidecar, "+
		"whose drain-timeout alone is %v", grace, drain)}
}

// patch adds the sidecar, in front of the other init containers, so that these can publish, and what it needs.
func (p *pod) patch(o options, makesVolume bool) []operation {
	var ops []operation
	add := func(path string, value any) { ops = append(ops, operation{"add", path, value}) }
	if len(p.Spec.InitContainers) == 0 {
		add("/spec/initContainers", []any{o.container(p)})
	} else {
		add("/spec/initContainers/0", o.container(p))
	}
	add("/metadata/labels/sluice", "sidecar")
	// The volumes are the sidecar's to write and read by their group.
	if p.Spec.SecurityContext == nil {
		add("/spec/securityContext", object{"fsGroup": user, "fsGroupChangePolicy": "OnRootMismatch"})
	} else if p.Spec.SecurityContext["fsGroup"] == nil {
		add("/spec/securityContext/fsGroup", user)
	}
	var volumes []any
	if makesVolume {
		volumes = append(volumes, object{"name": o.dataVolume, "emptyDir": object{"sizeLimit": "1Gi"}})
	}
	if o.authSecret != "" {
		volumes = append(volumes, object{"name": "sluice-auth", "secret": object{"secretName": o.authSecret, "defaultMode": 0o440}})
	}
	if o.configMap != "" {
		volumes = append(volumes, object{"name": "sluice-config", "configMap": object{"name": o.configMap}})
	}
	if len(p.Spec.Volumes) == 0 && len(volumes) > 0 {
		add("/spec/volumes", volumes)
		return ops
	}
	for _, v := range volumes {
		add("/spec/volumes/-", v)
	}
	return ops
}

// container is the sidecar: one that starts before the containers and ends after them, and that meets the level "restricted" of
// Kubernetes' Pod Security Standards.
func (o options) container(p *pod) object {
	c := object{
		"name": containerName, "image": o.image, "restartPolicy": "Always", "env": o.env(p),
		"ports": []any{
			object{"name": "sluice-replay", "containerPort": 8083}, object{"name": "sluice-ops", "containerPort": 7071},
		},
		// The application starts once its publishes are accepted.
		"startupProbe":   o.probe("/readyz", object{"periodSeconds": 1, "failureThreshold": 60}),
		"livenessProbe":  o.probe("/healthz", object{"periodSeconds": 10, "timeoutSeconds": 5}),
		"readinessProbe": o.probe("/readyz", object{"periodSeconds": 5, "timeoutSeconds": 3}),
		"resources": object{
			"requests": object{"cpu": o.cpuRequest, "memory": o.memoryRequest}, "limits": object{"memory": o.memoryLimit},
		},
		"securityContext": object{
			"runAsNonRoot": true, "runAsUser": user, "runAsGroup": user, "allowPrivilegeEscalation": false,
			"readOnlyRootFilesystem": true, "capabilities": object{"drop": []any{"ALL"}}, "seccompProfile": object{"type": "RuntimeDefault"},
		},
	}
	if o.storeSecret != "" {
		c["envFrom"] = []any{object{"secretRef": object{"name": o.storeSecret}}}
	}
	mounts := []any{object{"name": o.dataVolume, "mountPath": "/var/lib/sluice"}}
	if o.authSecret != "" {
		mounts = append(mounts, object{"name": "sluice-auth", "mountPath": "/etc/sluice", "readOnly": true})
	}
	if o.configMap != "" {
		mounts = append(mounts, object{"name": "sluice-config", "mountPath": "/etc/sluice-config", "readOnly": true})
	}
	c["volumeMounts"] = mounts
	return c
}

func (o options) probe(path string, probe object) object {
	scheme := "HTTPS"
	if o.flags["insecure"] == "true" {
		scheme = "HTTP"
	}
	probe["httpGet"] = object{"path": path, "port": "sluice-ops", "scheme": scheme}
	return probe
}

// env are the sidecar's settings. Those that a variable refers to stand before it.
func (o options) env(p *pod) []any {
	fromPod := func(name, path string) any {
		return object{"name": name, "valueFrom": object{"fieldRef": object{"fieldPath": path}}}
	}
	env := []any{
		fromPod("POD_NAME", "metadata.name"), fromPod("POD_NAMESPACE", "metadata.namespace"), fromPod("POD_IP", "status.podIP"),
		object{"name": "GOMEMLIMIT", "value": memoryShare(o.memoryLimit)},
	}
	settings := map[string]string{
		"listen": "127.0.0.1:7070", "replay-listen": ":8083", "ops-listen": ":7071", "data-dir": "/var/lib/sluice",
		"node-id": "$(POD_NAMESPACE).$(POD_NAME)", "replay-advertise": "$(POD_IP):8083",
	}
	if p.Spec.Hostname != "" && p.Spec.Subdomain != "" { // a StatefulSet's pod, which has a name in DNS
		settings["replay-advertise"] = fmt.Sprintf("%s.%s.$(POD_NAMESPACE).svc:8083", p.Spec.Hostname, p.Spec.Subdomain)
	}
	if o.authSecret != "" {
		settings["auth-config"] = "/etc/sluice/auth.yaml"
	}
	maps.Copy(settings, o.flags)
	for _, flag := range slices.Sorted(maps.Keys(settings)) {
		name := "SLUICE_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
		env = append(env, object{"name": name, "value": settings[flag]})
	}
	return env
}

// memoryShare is nine tenths of an amount of memory, in MiB: what is left is not Go's to count.
func memoryShare(limit string) string {
	mib, _ := strconv.Atoi(limit[:len(limit)-2]) // it is a number
	if strings.HasSuffix(limit, "Gi") {
		mib *= 1024
	}
	return fmt.Sprintf("%dMiB", max(1, mib*9/10))
}
