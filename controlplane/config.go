package controlplane

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/internal/httpapi"
)

// Config is what a control plane is made from. DefaultConfig has every default
// but for DataDir and Name.
type Config struct {
	XDSListen  string // gRPC, for sidecars: host:port or unix:/path
	HTTPListen string // REST and the console

	DataDir string
	Store   string // "embedded:", in DataDir, or a MongoDB connection string
	Name    string // of this control plane, among those on one store

	Policies       string // a file: the policies of a store that is new
	AuthConfig     string
	AllowedOrigins []string
	Insecure       bool // listen beyond loopback without authentication

	DrainTimeout time.Duration // how long a graceful stop may take
	StoreTimeout time.Duration // of one operation of a store in MongoDB

	Version string
	Logger  *slog.Logger
}

// DefaultConfig has the contract's defaults.
func DefaultConfig() Config {
	return Config{
		XDSListen:    "127.0.0.1:18000",
		HTTPListen:   "127.0.0.1:7080",
		Store:        StoreEmbedded,
		DrainTimeout: 5 * time.Second,
		StoreTimeout: 5 * time.Second,
		Version:      "devel",
		Logger:       slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
}

// StoreEmbedded is the store in the data folder.
const StoreEmbedded = "embedded:"

func isMongoDB(url string) bool {
	return strings.HasPrefix(url, "mongodb://") || strings.HasPrefix(url, "mongodb+srv://")
}

// ConfigError says that a setting is wrong, so that trying again does not help.
type ConfigError struct{ Err error }

func (e *ConfigError) Error() string { return e.Err.Error() }

func (e *ConfigError) Unwrap() error { return e.Err }

// Validate reports every setting that is wrong, or that does not go with
// another.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Store != StoreEmbedded && !isMongoDB(c.Store) {
		bad("store: must be embedded:, mongodb://… or mongodb+srv://…") // not quoted: it may hold a password
	}
	if c.Store == StoreEmbedded && c.DataDir == "" {
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
		return &ConfigError{errors.Join(errs...)}
	}
	return nil
}
