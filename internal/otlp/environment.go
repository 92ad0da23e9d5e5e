package otlp

import (
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

// environment looks a variable up; "" is what is not set.
type environment func(name string) string

// The exporters that there are.
const (
	exporterOTLP    = "otlp"
	exporterConsole = "console"
	exporterNone    = "none"
	// exporterPrometheus asks for what every server has anyway, at /metrics.
	exporterPrometheus = "prometheus"
)

// The protocols that there are.
const (
	protocolGRPC = "grpc"
	protocolHTTP = "http/protobuf"
)

// signals are what can be sent, as the variables' names have them.
const (
	traces  = "TRACES"
	metrics = "METRICS"
	logs    = "LOGS"
)

// request is what the environment asks of one signal.
type request struct {
	otlp, console bool
	protocol      string
}

// requests are those of all signals, and the bounds that are this package's to
// keep.
type requests struct {
	traces, metrics, logs request
	spanQueue, logQueue   int
}

func (r requests) any() bool {
	return slices.ContainsFunc([]request{r.traces, r.metrics, r.logs}, func(s request) bool { return s.otlp || s.console })
}

// Bounds of the queues where the environment names none, as the specification
// has them.
const (
	defaultSpanQueue = 2048
	defaultLogQueue  = 2048
)

func (env environment) disabled() bool {
	return strings.EqualFold(strings.TrimSpace(env("OTEL_SDK_DISABLED")), "true")
}

// read checks every variable that the exporters would take in silence, wrong or
// not: who mistypes one finds no data and no reason.
func (env environment) read() (r requests, err error) {
	var errs []error
	for _, s := range []struct {
		signal string
		into   *request
	}{{traces, &r.traces}, {metrics, &r.metrics}, {logs, &r.logs}} {
		*s.into, err = env.request(s.signal)
		errs = append(errs, err)
	}
	r.spanQueue, err = env.count("OTEL_BSP_MAX_QUEUE_SIZE", defaultSpanQueue)
	errs = append(errs, err)
	r.logQueue, err = env.count("OTEL_BLRP_MAX_QUEUE_SIZE", defaultLogQueue)
	errs = append(errs, err, env.checkSampler())
	for _, name := range []string{
		"OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "OTEL_BSP_SCHEDULE_DELAY", "OTEL_BSP_EXPORT_TIMEOUT",
		"OTEL_BLRP_MAX_EXPORT_BATCH_SIZE", "OTEL_BLRP_SCHEDULE_DELAY", "OTEL_BLRP_EXPORT_TIMEOUT",
		"OTEL_METRIC_EXPORT_INTERVAL", "OTEL_METRIC_EXPORT_TIMEOUT",
	} {
		_, err := env.count(name, 0)
		errs = append(errs, err)
	}
	return r, errors.Join(errs...)
}

// request reads what is asked of one signal.
func (env environment) request(signal string) (request, error) {
	name := "OTEL_" + signal + "_EXPORTER"
	asked := env(name)
	_, endpoint := env.ofSignal(signal, "ENDPOINT")
	if asked == "" {
		if endpoint == "" {
			return request{}, nil
		}
		asked = exporterOTLP
	}
	var r request
	for exporter := range strings.SplitSeq(asked, ",") {
		switch exporter = strings.TrimSpace(exporter); {
		case exporter == exporterOTLP:
			r.otlp = true
		case exporter == exporterConsole:
			r.console = true
		case exporter == exporterNone, exporter == exporterPrometheus && signal == metrics:
		default:
			return request{}, fmt.Errorf("%s: must be %s, %s or %s, not %q", name, exporterOTLP, exporterConsole, exporterNone, exporter)
		}
	}
	if !r.otlp {
		return r, nil
	}
	var err error
	r.protocol, err = env.protocol(signal)
	return r, errors.Join(err, env.checkConnection(signal, r.protocol))
}

// ofSignal reads a variable of the exporters: the signal's own, else that of
// all signals. It returns the name of the one that counts, too.
func (env environment) ofSignal(signal, what string) (name, value string) {
	name = "OTEL_EXPORTER_OTLP_" + signal + "_" + what
	if value = strings.TrimSpace(env(name)); value != "" {
		return name, value
	}
	name = "OTEL_EXPORTER_OTLP_" + what
	return name, strings.TrimSpace(env(name))
}

func (env environment) protocol(signal string) (string, error) {
	switch name, protocol := env.ofSignal(signal, "PROTOCOL"); protocol {
	case "":
		return protocolHTTP, nil
	case protocolGRPC, protocolHTTP:
		return protocol, nil
	default:
		return "", fmt.Errorf("%s: must be %s or %s, not %q", name, protocolGRPC, protocolHTTP, protocol)
	}
}

// checkConnection checks how the receiver of a signal is reached.
func (env environment) checkConnection(signal, protocol string) error {
	var errs []error
	if name, endpoint := env.ofSignal(signal, "ENDPOINT"); endpoint != "" {
		errs = append(errs, checkEndpoint(name, endpoint, protocol))
	}
	if name, compression := env.ofSignal(signal, "COMPRESSION"); !slices.Contains([]string{"", "gzip", "none"}, compression) {
		errs = append(errs, fmt.Errorf("%s: must be gzip or none, not %q", name, compression))
	}
	name, _ := env.ofSignal(signal, "TIMEOUT")
	_, err := env.count(name, 0)
	errs = append(errs, err)
	if name, headers := env.ofSignal(signal, "HEADERS"); headers != "" {
		errs = append(errs, checkHeaders(name, headers))
	}
	return errors.Join(append(errs, env.checkCertificates(signal))...)
}

// checkEndpoint leaves alone what gRPC knows beside URLs, like unix:/path.
func checkEndpoint(name, endpoint, protocol string) error {
	u, err := url.Parse(endpoint)
	isURL := err == nil && u.Host != "" && (u.Scheme == "http" || u.Scheme == "https")
	if err != nil || protocol != protocolGRPC && !isURL {
		// The address itself may hold a password.
		return fmt.Errorf("%s: must be http://host:port or https://host:port", name)
	}
	return nil
}

// checkHeaders refuses what would be left out, without quoting a value: most
// are secrets.
func checkHeaders(name, headers string) error {
	for pair := range strings.SplitSeq(headers, ",") {
		key, value, ok := strings.Cut(pair, "=")
		if _, err := url.PathUnescape(value); !ok || strings.TrimSpace(key) == "" || err != nil {
			return fmt.Errorf("%s: must be name=value,name=value with %%-escapes in the values", name)
		}
	}
	return nil
}

func (env environment) checkCertificates(signal string) error {
	if name, file := env.ofSignal(signal, "CERTIFICATE"); file != "" {
		pem, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if !x509.NewCertPool().AppendCertsFromPEM(pem) {
			return fmt.Errorf("%s: %s has no certificate in PEM form", name, file)
		}
	}
	certName, cert := env.ofSignal(signal, "CLIENT_CERTIFICATE")
	keyName, key := env.ofSignal(signal, "CLIENT_KEY")
	if (cert == "") != (key == "") {
		return fmt.Errorf("%s and %s: one needs the other", certName, keyName)
	}
	if cert != "" {
		if _, err := tls.LoadX509KeyPair(cert, key); err != nil {
			return fmt.Errorf("%s: %w", certName, err)
		}
	}
	return nil
}

// checkSampler knows the samplers that the specification has and that are there.
func (env environment) checkSampler() error {
	const name = "OTEL_TRACES_SAMPLER"
	samplers := []string{
		"always_on", "always_off", "traceidratio",
		"parentbased_always_on", "parentbased_always_off", "parentbased_traceidratio",
	}
	sampler := strings.ToLower(strings.TrimSpace(env(name)))
	if sampler == "" {
		return nil
	}
	if !slices.Contains(samplers, sampler) {
		return fmt.Errorf("%s: must be one of %s, not %q", name, strings.Join(samplers, ", "), sampler)
	}
	arg := strings.TrimSpace(env(name + "_ARG"))
	if arg == "" || !strings.HasSuffix(sampler, "traceidratio") {
		return nil
	}
	if ratio, err := strconv.ParseFloat(arg, 64); err != nil || !(ratio >= 0 && ratio <= 1) {
		return fmt.Errorf("%s_ARG: must be a number from 0 to 1, not %q", name, arg)
	}
	return nil
}

// count reads a number above 0: of milliseconds, spans or records.
func (env environment) count(name string, otherwise int) (int, error) {
	text := strings.TrimSpace(env(name))
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n <= 0 {
		return 0, fmt.Errorf("%s: must be a whole number above 0, not %q", name, text)
	}
	return n, nil
}
