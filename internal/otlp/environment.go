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

	"go.opentelemetry.io/contrib/propagators/autoprop"
	"go.opentelemetry.io/otel/propagation"
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

// unusable is a variable that this program cannot use. It may be meant for another program of the same pod or machine, so it is
// no reason not to start.
type unusable struct {
	name string
	err  error
}

// read reads the configuration of each signal, and returns the variables that it leaves out. It checks every variable that the
// exporters and the SDK would read silently, wrong or not: a typing error would mean no data and no reason.
func (env environment) read() (asked map[string][]string, left []unusable) {
	asked = map[string][]string{}
	check := func(name string, is func(string) error) bool {
		value := env(name)
		if value == "" || slices.ContainsFunc(left, func(u unusable) bool { return u.name == name }) {
			return value == ""
		}
		err := is(value)
		if err != nil {
			left = append(left, unusable{name, err})
		}
		return err == nil
	}
	for _, signal := range []string{traces, metrics, logs} {
		if kinds := env.kinds(signal, check); len(kinds) > 0 {
			asked[signal] = kinds
		}
	}
	for _, name := range []string{
		"OTEL_BSP_MAX_QUEUE_SIZE", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "OTEL_BSP_SCHEDULE_DELAY", "OTEL_BSP_EXPORT_TIMEOUT",
		"OTEL_BLRP_MAX_QUEUE_SIZE", "OTEL_BLRP_MAX_EXPORT_BATCH_SIZE", "OTEL_BLRP_SCHEDULE_DELAY", "OTEL_BLRP_EXPORT_TIMEOUT",
		"OTEL_METRIC_EXPORT_INTERVAL", "OTEL_METRIC_EXPORT_TIMEOUT",
	} {
		check(name, whole)
	}
	const sampler = "OTEL_TRACES_SAMPLER"
	isSampler := oneOf("one of ", "always_on", "always_off", "traceidratio", "parentbased_always_on", "parentbased_always_off",
		"parentbased_traceidratio")
	if check(sampler, func(value string) error { return isSampler(strings.ToLower(value)) }) &&
		strings.HasSuffix(strings.ToLower(env(sampler)), "traceidratio") {
		check(sampler+"_ARG", ratio)
	}
	return asked, left
}

// propagators reads OTEL_PROPAGATORS: nil for the default, trace context and baggage.
func (env environment) propagators() (propagation.TextMapPropagator, []unusable) {
	const name = "OTEL_PROPAGATORS"
	var names []string
	for each := range strings.SplitSeq(env(name), ",") {
		if each = strings.TrimSpace(each); each != "" && !slices.Contains(names, each) {
			names = append(names, each)
		}
	}
	slices.Sort(names)
	if len(names) == 0 || slices.Equal(names, []string{"baggage", "tracecontext"}) {
		return nil, nil
	}
	formats, err := autoprop.TextMapPropagator(names...)
	if err != nil {
		return nil, []unusable{{name, fmt.Errorf("%w; tracecontext, baggage, b3, b3multi, jaeger, xray, ottrace and none are allowed", err)}}
	}
	return formats, nil
}

// kinds reads which exporters one signal has: an endpoint alone enables it. A signal whose endpoint, certificate or headers cannot
// be used is off: it would send to another place, or in the clear.
func (env environment) kinds(signal string, check func(name string, is func(string) error) bool) (kinds []string) {
	_, endpoint := env.ofSignal(signal, "ENDPOINT")
	name := "OTEL_" + strings.ToUpper(signal) + "_EXPORTER"
	otlp, known := false, false
	for exporter := range strings.SplitSeq(env(name), ",") {
		switch exporter = strings.TrimSpace(exporter); {
		case exporter == "":
			continue
		case exporter == "otlp":
			otlp = true
		case exporter == kindConsole:
			kinds = []string{kindConsole}
		case exporter == "prometheus" && signal == metrics, exporter == "none": // every server has /metrics anyway
		default:
			check(name, func(string) error { return oneOf("", "otlp", kindConsole, "none")(exporter) })
			continue
		}
		known = true
	}
	if !otlp && (known || endpoint == "") {
		return kinds
	}
	protocolName, protocol := env.ofSignal(signal, "PROTOCOL")
	if !check(protocolName, oneOf("", kindGRPC, kindHTTP)) {
		return kinds
	}
	protocol = cmp.Or(protocol, kindHTTP)
	isEndpoint := isURL
	if protocol == kindGRPC {
		isEndpoint = isTarget
	}
	usable := true
	for _, c := range []struct {
		what string
		is   func(string) error
		must bool
	}{
		{"ENDPOINT", isEndpoint, true}, {"CERTIFICATE", isCertificate, true}, {"HEADERS", isHeaders, true},
		{"COMPRESSION", oneOf("", "gzip", "none"), false}, {"TIMEOUT", whole, false},
	} {
		name, _ := env.ofSignal(signal, c.what)
		usable = (check(name, c.is) || !c.must) && usable
	}
	certName, cert := env.ofSignal(signal, "CLIENT_CERTIFICATE")
	keyName, key := env.ofSignal(signal, "CLIENT_KEY")
	pair := func(string) error {
		if (cert == "") != (key == "") {
			return fmt.Errorf("%s and %s: one needs the other", certName, keyName)
		}
		_, err := tls.LoadX509KeyPair(cert, key)
		return err
	}
	named := certName // the variable that is named where the pair is wrong
	if cert == "" {
		named = keyName
	}
	if !check(named, pair) || !usable {
		return kinds
	}
	return append(kinds, protocol)
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
