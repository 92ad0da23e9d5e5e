package injector

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-bus/sluice/deploy/schemas"
	"github.com/sluice-bus/sluice/sdk/wire/nearest"
)

const (
	// prefix begins the names of labels and annotations.
	prefix      = "sluice.dev/"
	injectLabel = prefix + "inject"
)

// options are what a sidecar is to be.
type options struct {
	image, storeSecret, authSecret, configMap, dataVolume string
	cpuRequest, memoryRequest, memoryLimit                string
	flags                                                 map[string]string // of the sidecar, by their names
}

func (c Config) defaults() options {
	return options{
		image: c.Image, storeSecret: c.StoreSecret, authSecret: c.AuthSecret,
		cpuRequest: c.CPURequest, memoryRequest: c.MemoryRequest, memoryLimit: c.MemoryLimit, flags: c.Settings,
	}
}

// field is an option that is no flag of the sidecar.
type field struct {
	value *string
	check func(string) error
}

func (o *options) fields() map[string]field {
	return map[string]field{
		"image":        {&o.image, matches(`^\S+$`, "the name of an image")},
		"store-secret": {&o.storeSecret, isName}, "auth-secret": {&o.authSecret, isName},
		"config-map": {&o.configMap, isName}, "data-volume": {&o.dataVolume, isName},
		"cpu-request":    {&o.cpuRequest, matches(`^[1-9][0-9]*m?$`, "CPUs, such as 100m or 1")},
		"memory-request": {&o.memoryRequest, isMemory}, "memory-limit": {&o.memoryLimit, isMemory},
	}
}

var (
	isName   = matches(`^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$`, "the name of an object of Kubernetes")
	isMemory = matches(`^[1-9][0-9]{0,6}[MG]i$`, "a number of Mi or Gi, such as 64Mi")
)

func matches(pattern, want string) func(string) error {
	compiled := regexp.MustCompile(pattern)
	return func(value string) error {
		if !compiled.MatchString(value) {
			return fmt.Errorf("%q must be %s", value, want)
		}
		return nil
	}
}

// annotated are the defaults with what a pod's annotations say. The error has all that are wrong.
func (o options) annotated(annotations map[string]string) (options, error) {
	o.flags = maps.Clone(o.flags)
	if o.flags == nil {
		o.flags = map[string]string{}
	}
	fields := o.fields()
	var wrong []string
	for _, annotation := range slices.Sorted(maps.Keys(annotations)) {
		name, ours := strings.CutPrefix(annotation, prefix)
		if !ours {
			continue
		}
		value := annotations[annotation]
		var err error
		if f, ok := fields[name]; ok {
			err = f.check(value)
			*f.value = value
		} else {
			err = checkFlag(name, value)
			o.flags[name] = value
		}
		if err != nil {
			wrong = append(wrong, fmt.Sprintf("annotation %s: %v", annotation, err))
		}
	}
	if len(wrong) > 0 {
		return o, errors.New(strings.Join(wrong, "; "))
	}
	return o, nil
}

// flagSchema is what a sidecar's flag may be.
type flagSchema struct {
	Type    any      `json:"type"`
	Enum    []string `json:"enum"`
	Pattern string   `json:"pattern"`
	Minimum int64    `json:"minimum"`
}

// flags are those of a sidecar.
var flags = func() map[string]flagSchema {
	var schema struct {
		Properties map[string]flagSchema `json:"properties"`
	}
	if err := json.Unmarshal(schemas.SidecarConfig, &schema); err != nil {
		panic(err) // a defect of the generated file
	}
	return schema.Properties
}()

// fixed are the flags that no annotation sets, and why.
var fixed = map[string]string{
	"listen":        "is the pod's loopback address, which its containers share",
	"replay-listen": "is what the container's port says", "ops-listen": "is what the container's port says",
	"data-dir": "is where the volume of " + prefix + "data-volume is mounted", "node-id": "is made of the pod's namespace and name",
	"auth-config": "is in the Secret of " + prefix + "auth-secret, as auth.yaml",
	"store":       "may have a password: it is in the Secret of " + prefix + "store-secret, as SLUICE_STORE",
	"outbox":      "may have a password: it is in the Secret of " + prefix + "store-secret, as SLUICE_OUTBOX",
	"inject":      "is a label, not an annotation",
}

// checkFlag checks a setting of the sidecar as far as its schema tells; the sidecar checks the rest.
func checkFlag(name, value string) error {
	if why := fixed[name]; why != "" {
		return errors.New(why)
	}
	flag, ok := flags[name]
	if !ok {
		known := slices.Concat(slices.Collect(maps.Keys(flags)), slices.Collect(maps.Keys(new(options).fields())))
		slices.Sort(known)
		return errors.New("there is no such setting" + nearest.Hint(name, known))
	}
	switch {
	case len(flag.Enum) > 0 && !slices.Contains(flag.Enum, value):
		return fmt.Errorf("must be one of %s, not %q%s", strings.Join(flag.Enum, ", "), value, nearest.Hint(value, flag.Enum))
	case flag.Type == "boolean" && value != "true" && value != "false":
		return fmt.Errorf("must be true or false, not %q", value)
	case flag.Type == "integer":
		if n, err := strconv.ParseInt(value, 10, 64); err != nil || n < flag.Minimum {
			return fmt.Errorf("must be a whole number of at least %d, not %q", flag.Minimum, value)
		}
	case flag.Pattern != "" && !regexp.MustCompile(flag.Pattern).MatchString(value):
		return fmt.Errorf("must be a duration such as 15s or 2m, not %q", value)
	}
	return nil
}
