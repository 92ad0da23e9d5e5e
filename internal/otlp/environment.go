package otlp

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
)

// environment looks a variable up; "" is unset.
type environment func(name string) string

// The signals that can be exported; the variables have their names in capitals.
const (
	traces  = "traces"
	metrics = "metrics"
	logs    = "logs"
)

// The kinds of exporters: two protocols, of which HTTP is the default, and standard error.
const (
	kindGRPC    = "grpc"
	kindHTTP    = "http/protobuf"
	kindConsole = "console"
)

func (env environment) disabled() bool {
	return strings.EqualFold(env("OTEL_SDK_DISABLED"), "true")
}

// read reads the configuration of each signal. It checks every variable that the exporters and the
// SDK would read silently, wrong or not: a typing error would mean no data and no reason.
func (env environment) read() (map[string][]string, error) {
	asked := map[string][]string{}
	var errs []error
	for _, signal := range []string{traces, metrics, logs} {
		kinds, err := env.kinds(signal)
		if errs = append(errs, err); len(kinds) > 0 {
			asked[signal] = kinds
		}
	}
	for _, name := range []string{
		"OTEL_BSP_MAX_QUEUE_SIZE", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "OTEL_BSP_SCHEDULE_DELAY", "OTEL_BSP_EXPORT_TIMEOUT",
		"OTEL_BLRP_MAX_QUEUE_SIZE", "OTEL_BLRP_MAX_EXPORT_BATCH_SIZE", "OTEL_BLRP_SCHEDULE_DELAY", "OTEL_BLRP_EXPORT_TIMEOUT",
		"OTEL_METRIC_EXPORT_INTERVAL", "OTEL_METRIC_EXPORT_TIMEOUT",
	} {
		errs = append(errs, check(name, env(name), whole))
	}
	const sampler = "OTEL_TRACES_SAMPLER"
	errs = append(errs, check(sampler, strings.ToLower(env(sampler)), oneOf("one of ", "always_on", "always_off", "traceidratio",
		"parentbased_always_on", "parentbased_always_off", "parentbased_traceidratio")))
	if strings.HasSuffix(strings.ToLower(env(sampler)), "traceidratio") {
		errs = append(errs, check(sampler+"_ARG", env(sampler+"_ARG"), ratio))
	}
	return asked, errors.Join(errs...)
}

// kinds reads which exporters one signal has: an endpoint alone enables it.
func (env environment) kinds(signal string) (kinds []string, err error) {
	_, endpoint := env.ofSignal(signal, "ENDPOINT")
	name := "OTEL_" + strings.ToUpper(signal) + "_EXPORTER"
	exporters := env(name)
	if exporters == "" && endpoint != "" {
		exporters = "otlp"
	}
	otlp := false
	for exporter := range strings.SplitSeq(exporters, ",") {
		switch exporter = strings.TrimSpace(exporter); {
		case exporter == "otlp":
			otlp = true
		case exporter == kindConsole:
			kinds = []string{kindConsole}
		case exporter == "prometheus" && signal == metrics: // every server has it anyway, at /metrics
		default:
			if err := check(name, exporter, oneOf("", "otlp", kindConsole, "none")); err != nil {
				return nil, err
			}
		}
	}
	if !otlp {
		return kinds, nil
	}
	_, protocol := env.ofSignal(signal, "PROTOCOL")
	protocol = cmp.Or(protocol, kindHTTP)
	kinds = append(kinds, protocol)
	isEndpoint := isURL
	if protocol == kindGRPC {
		isEndpoint = isTarget
	}
	var errs []error
	for what, is := range map[string]func(string) error{
		"PROTOCOL": oneOf("", kindGRPC, kindHTTP), "COMPRESSION": oneOf("", "gzip", "none"), "ENDPOINT": isEndpoint,
		"TIMEOUT": whole, "HEADERS": isHeaders, "CERTIFICATE": isCertificate,
	} {
		name, value := env.ofSignal(signal, what)
		errs = append(errs, check(name, value, is))
	}
	certName, cert := env.ofSignal(signal, "CLIENT_CERTIFICATE")
	keyName, key := env.ofSignal(signal, "CLIENT_KEY")
	if (cert == "") != (key == "") {
		errs = append(errs, fmt.Errorf("%s and %s: one needs the other", certName, keyName))
	} else if cert != "" {
		errs = append(errs, check(certName, cert, func(string) error { _, err := tls.LoadX509KeyPair(cert, key); return err }))
	}
	return kinds, errors.Join(errs...)
}

// ofSignal reads a variable of the exporters: the signal's own, else that of all signals. It also
// returns the variable's name.
func (env environment) ofSignal(signal, what string) (name, value string) {
	name = "OTEL_EXPORTER_OTLP_" + strings.ToUpper(signal) + "_" + what
	if value = env(name); value != "" {
		return name, value
	}
	name = "OTEL_EXPORTER_OTLP_" + what
	return name, env(name)
}

// check names a variable with a wrong value. An unset one is right.
func check(name, value string, is func(string) error) error {
	if value == "" {
		return nil
	}
	if err := is(value); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func oneOf(of string, allowed ...string) func(string) error {
	return func(value string) error {
		if slices.Contains(allowed, value) {
			return nil
		}
		last := len(allowed) - 1
		return fmt.Errorf("must be %s%s or %s, not %q", of, strings.Join(allowed[:last], ", "), allowed[last], value)
	}
}

func whole(value string) error {
	if n, err := strconv.Atoi(value); err != nil || n <= 0 {
		return fmt.Errorf("must be a whole number above 0, not %q", value)
	}
	return nil
}

func ratio(value string) error {
	if n, err := strconv.ParseFloat(value, 64); err != nil || !(n >= 0 && n <= 1) {
		return fmt.Errorf("must be a number from 0 to 1, not %q", value)
	}
	return nil
}

// Endpoints and headers may hold secrets, which the errors do not quote. gRPC knows targets beside
// URLs, like unix:/path.

var errEndpoint = errors.New("must be http://host:port or https://host:port")

func isTarget(value string) error {
	if _, err := url.Parse(value); err != nil {
		return errEndpoint
	}
	return nil
}

func isURL(value string) error {
	if u, err := url.Parse(value); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return errEndpoint
	}
	return nil
}

func isHeaders(value string) error {
	for pair := range strings.SplitSeq(value, ",") {
		key, value, ok := strings.Cut(pair, "=")
		if _, err := url.PathUnescape(value); !ok || strings.TrimSpace(key) == "" || err != nil {
			return errors.New("must be name=value,name=value with %-escapes in the values")
		}
	}
	return nil
}

func isCertificate(file string) error {
	pem, err := os.ReadFile(file)
	if err == nil && !x509.NewCertPool().AppendCertsFromPEM(pem) {
		err = fmt.Errorf("%s has no certificate in PEM form", file)
	}
	return err
}
