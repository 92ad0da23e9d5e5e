package access

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// Identify finds the identity of a request: by its bearer token, or that of a client of Dapr, or
// without one by the client certificate of its connection. Without authentication all requests have the same identity. The
// error is that of [Access.Token].
func (a *Access) Identify(r *http.Request) (Identity, error) {
	if !a.Authenticates() {
		return everybody, nil
	}
	return a.identify(r.Context(), authorization(r.Header), r.TLS, r.RemoteAddr)
}

// authorization are the values of Authorization. Clients of Dapr send their token alone, in a header
// of their own.
func authorization(h http.Header) []string {
	values := h["Authorization"]
	if len(values) == 0 {
		for _, token := range h["Dapr-Api-Token"] {
			values = append(values, "Bearer "+token)
		}
	}
	return values
}

// bearer is the token of an Authorization header.
func bearer(values []string) (string, *wire.Error) {
	if len(values) > 1 {
		return "", wire.Errorf(wire.Unauthorized, "Authorization is given %d times; give it once", len(values))
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	token = strings.TrimSpace(token)
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return "", wire.Errorf(wire.Unauthorized, "Authorization must be Bearer and a token")
	}
	return token, nil
}

// Authenticate passes authenticated requests to next, which gets the identity by [Access.From], and
// refuses others with 401. It passes requests for the paths in open without a check. Without
// authentication it is next.
func (a *Access) Authenticate(next http.Handler, open ...string) http.Handler {
	return a.guard(next, open, func(Identity) error { return nil })
}

// Require is Authenticate, and also refuses identities without the right with 403.
func (a *Access) Require(do Action, next http.Handler, open ...string) http.Handler {
	return a.guard(next, open, func(id Identity) error { return id.May(do, "", "") })
}

func (a *Access) guard(next http.Handler, open []string, allowed func(Identity) error) http.Handler {
	if !a.Authenticates() {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if slices.Contains(open, r.URL.Path) {
			next.ServeHTTP(w, r)
			return
		}
		id, err := a.Identify(r)
		if err != nil {
			a.Challenge(w, r, err)
			return
		}
		if err := allowed(id); err != nil {
			httpapi.WriteError(w, r, err, a.log)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), identityKey{}, id)))
	})
}

// Challenge answers a request that Identify has refused: with 401 and the kind of authentication
// that is needed, or with 429.
func (a *Access) Challenge(w http.ResponseWriter, r *http.Request, err error) {
	challenge := `Bearer realm="sluice"`
	if len(authorization(r.Header)) > 0 {
		challenge += `, error="invalid_token"`
		a.noteRefused(r.RemoteAddr, err)
	}
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		w.Header().Set("Connection", "close") // the client may have a better certificate by now
	}
	w.Header().Set("WWW-Authenticate", challenge)
	httpapi.WriteError(w, r, err, a.log)
}

type identityKey struct{}

// From returns the identity that Authenticate or ForPeople found, or without authentication that of
// every client. With authentication, a context that did not pass either has the zero Identity.
func (a *Access) From(ctx context.Context) Identity {
	id, _ := ctx.Value(identityKey{}).(Identity)
	if !a.Authenticates() && !id.Forwarded {
		return everybody
	}
	return id
}
