package controlplane

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"time"

	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/internal/listen"
	"github.com/sluice-bus/sluice/internal/otlp"
	"github.com/sluice-bus/sluice/internal/setting"
)

// Config has the settings of a control plane. A field's tags describe its flag, which is also a
// variable of the environment and a key of the configuration file.
type Config struct {
	XDSListen  string `name:"xds-listen" default:"127.0.0.1:18000" placeholder:"ADDR" help:"xDS: host:port (port 0 picks one) or unix:/path."`
	HTTPListen string `name:"http-listen" default:"127.0.0.1:7080" placeholder:"ADDR" help:"REST API, console, health and metrics."`

	AdvertiseURL string `name:"advertise-url" placeholder:"URL" help:"Where other control planes of --store reach --http-listen, such as http://10.0.0.5:7080; its address, unless that stands for all."`

	DataDir  string `default:"${data_dir}" help:"Folder of the embedded store."`
	Store    string `secret:"" default:"embedded:" placeholder:"URL" help:"Policies: embedded: or, shared by control planes, mongodb://…"`
	Name     string `default:"${host}" help:"Name of this control plane, among those on one store."`
	Policies string `placeholder:"FILE" help:"YAML file with the policies of the first start; later starts leave the store as it is."`

	AuthConfig     string   `placeholder:"FILE" help:"YAML file with tokens, roles and TLS certificates; needed to listen beyond loopback."`
	AllowedOrigins []string `placeholder:"ORIGIN" help:"Web origins (https://host[:port]) beside the console's whose pages may use the API."`
	Insecure       bool     `help:"Listen beyond loopback without authentication: everyone who reaches the port may change every limit."`

	TraceURL string `name:"trace-url" placeholder:"URL" help:"Page of a trace, with {trace_id} for its id; the console links to it."`

	MaxBufferedBytes int64 `min:"16777216" default:"134217728" help:"Memory of all clients of the REST API, for requests and answers."`

	DrainTimeout time.Duration `min:"1ms" default:"5s" help:"Longest time of a graceful stop."`
	StoreTimeout time.Duration `min:"1ms" default:"5s" help:"Longest time of one operation of a store in MongoDB."`

	Version string           `kong:"-"`
	Logger  *slog.Logger     `kong:"-"`
	Hangups <-chan os.Signal `kong:"-"` // each SIGHUP, which makes it read its files again; nil: none
	Exports *otlp.Exports    `kong:"-"` // nil: nothing is sent
}

// traceURL is what a page can link to without running a script.
var traceURL = regexp.MustCompile(`^https?://.*\{trace_id\}`)

// advertised is an address without a path.
var advertised = regexp.MustCompile(`^https?://[^/?#@]+/?$`)

// listener is one of the settings that name an address to listen on.
type listener struct{ name, addr string }

func (c Config) listeners() []listener {
	return []listener{{"xds-listen", c.XDSListen}, {"http-listen", c.HTTPListen}}
}

// ConfigError says that a setting is wrong.
type ConfigError = setting.Error

// Validate reports every setting that is wrong or contradicts another one.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if err := setting.CheckStore(c.Store); err != nil {
		errs = append(errs, err)
	}
	if c.Store == setting.Embedded && c.DataDir == "" {
		bad("data-dir: must not be empty")
	}
	if c.Name == "" {
		bad("name: must not be empty")
	}
	for _, l := range c.listeners() {
		if err := listen.Check(l.addr); err != nil {
			bad("%s: %w", l.name, err)
		}
	}
	if err := (httpapi.Guard{AllowedOrigins: c.AllowedOrigins}).Validate(); err != nil {
		bad("allowed-origins: %w", err)
	}
	if c.TraceURL != "" && !traceURL.MatchString(c.TraceURL) {
		bad("trace-url: must begin with https:// or http://, and have {trace_id} where the id goes")
	}
	if c.AdvertiseURL != "" && !advertised.MatchString(c.AdvertiseURL) {
		bad("advertise-url: must be http:// or https:// and an address such as 10.0.0.5:7080")
	}
	if len(errs) > 0 {
		return &ConfigError{Err: errors.Join(errs...)}
	}
	return nil
}
