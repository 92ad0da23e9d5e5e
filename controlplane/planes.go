package controlplane

import (
	"fmt"
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
	return c.scheme() + "://" + at.String()
}

func (c *ControlPlane) scheme() string {
	if c.access.TLS() != nil {
		return "https"
	}
	return "http"
}

// restURL is what sidecars say where this control plane's REST API is: as url, without a host where the listener is at all of the
// machine's addresses.
func (c *ControlPlane) restURL() string {
	at, tcp := c.httpListener.Addr().(*net.TCPAddr)
	if url := c.url(); url != "" || !tcp {
		return url
	}
	return fmt.Sprintf("%s://:%d", c.scheme(), at.Port)
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
