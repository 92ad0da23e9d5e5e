package controlplane

import (
	"net"
	"net/url"

	"github.com/sluice-bus/sluice/controlplane/internal/forward"
)

// url is where other control planes reach this one; "": they cannot.
func (c *ControlPlane) url() string {
	if c.cfg.AdvertiseURL != "" {
		return c.cfg.AdvertiseURL
	}
	at, tcp := c.httpListener.Addr().(*net.TCPAddr)
	if !tcp || at.IP.IsUnspecified() {
		return ""
	}
	scheme := "http"
	if c.access.TLS() != nil {
		scheme = "https"
	}
	return scheme + "://" + at.String()
}

// planes are the other control planes of the store. A person's token goes only to those with TLS where this one has it.
func (c *ControlPlane) planes() (forward.Planes, error) {
	client, err := c.access.Peers().ForTLS().Open()
	if err != nil {
		return forward.Planes{}, &ConfigError{Err: err}
	}
	return forward.Planes{Secure: client.UseIn, Of: func(store string) (list []*url.URL) {
		urls := c.urls.Load()
		for _, name := range c.registry.PlanesOf(store) {
			if at := (*urls)[name]; at != nil && (at.Scheme == "https" || c.access.TLS() == nil) {
				list = append(list, at)
			}
		}
		return list
	}}, nil
}
