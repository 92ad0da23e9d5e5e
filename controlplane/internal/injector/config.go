// Package injector adds a sidecar to pods: it answers what a Kubernetes API server asks about a pod
// that is being created (AdmissionReview of admission.k8s.io/v1) with a JSON Patch. It knows nothing
// of the cluster but that pod, and calls nobody.
//
// The few members of Kubernetes' objects that it reads are types of its own: a patch leaves what it
// does not know as it is, whatever the cluster's version, and Kubernetes' modules are not needed.
package injector

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/sluice-bus/sluice/internal/setting"
)

// Config has the settings of an injector. A field's tags describe its flag, which is also a variable
// of the environment and a key of the configuration file.
type Config struct {
	Listen  string `default:"127.0.0.1:8443" placeholder:"ADDR" help:"Webhook, with TLS: host:port (port 0 picks one)."`
	TLSCert string `name:"tls-cert" placeholder:"FILE" help:"Certificate of the webhook, read again for each connection."`
	TLSKey  string `name:"tls-key" placeholder:"FILE" help:"Its private key."`

	Image         string            `placeholder:"IMAGE" help:"Image of the sidecar."`
	StoreSecret   string            `placeholder:"NAME" help:"Secret in the pod's namespace with the sidecar's variables that are secret: SLUICE_STORE."`
	AuthSecret    string            `placeholder:"NAME" help:"Secret in the pod's namespace with auth.yaml, for --auth-config, and the files that this names."`
	CPURequest    string            `name:"cpu-request" default:"100m" help:"CPU that the sidecar requests."`
	MemoryRequest string            `default:"64Mi" help:"Memory that the sidecar requests."`
	MemoryLimit   string            `default:"512Mi" help:"Most memory of the sidecar, in Mi or Gi."`
	Settings      map[string]string `mapsep:"," placeholder:"FLAG=VALUE" help:"Settings of all sidecars, by their flags' names without dashes in front."`

	Version string       `kong:"-"`
	Logger  *slog.Logger `kong:"-"`
}

// Validate reports every setting that is wrong.
func (c Config) Validate() error {
	var errs []error
	for _, needed := range []struct{ flag, value string }{
		{"listen", c.Listen}, {"tls-cert", c.TLSCert}, {"tls-key", c.TLSKey}, {"image", c.Image},
	} {
		if needed.value == "" {
			errs = append(errs, fmt.Errorf("%s: must not be empty", needed.flag))
		}
	}
	for flag, value := range c.Settings {
		if err := checkFlag(flag, value); err != nil {
			errs = append(errs, fmt.Errorf("settings: %s: %w", flag, err))
		}
	}
	o := c.defaults()
	for name, field := range o.fields() {
		if err := field.check(*field.value); err != nil && *field.value != "" {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return &setting.Error{Err: err}
	}
	return nil
}
