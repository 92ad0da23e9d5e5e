package controlplane

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/internal/otlp"
	"github.com/sluice-bus/sluice/internal/setting"
)

// Config has the settings of a control plane. Every field is required unless it may be empty or
// false.
type Config struct {
	XDSListen  string // gRPC, for sidecars: host:port or unix:/path
	HTTPListen string // REST and the console

	DataDir string
	Store   string // setting.Embedded, in DataDir, or a MongoDB connection string
	Name    string // of this control plane, among those on one store

	Policies       string // a file: the policies of a store that is new; "" for none
	AuthConfig     string // a file; "" for none
	AllowedOrigins []string
	Insecure       bool // listen beyond loopback without authentication

	DrainTimeout time.Duration // how long a graceful stop may take
	StoreTimeout time.Duration // of one operation of a store in MongoDB

	Version string
	Logger  *slog.Logger
	Exports *otlp.Exports // nil: nothing is sent
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
	if c.DrainTimeout <= 0 {
		bad("drain-timeout: must be above 0")
	}
	if c.StoreTimeout <= 0 {
		bad("store-timeout: must be above 0")
	}
	for _, l := range []struct{ name, addr string }{{"xds-listen", c.XDSListen}, {"http-listen", c.HTTPListen}} {
		if l.addr == "" {
			bad("%s: must be host:port or unix:/path", l.name)
		} else if err := access.CheckListener(l.name, l.addr, c.AuthConfig != "", c.Insecure); err != nil {
			errs = append(errs, err)
		}
	}
	if err := (httpapi.Guard{AllowedOrigins: c.AllowedOrigins}).Validate(); err != nil {
		bad("allowed-origins: %w", err)
	}
	if len(errs) > 0 {
		return &ConfigError{Err: errors.Join(errs...)}
	}
	return nil
}
