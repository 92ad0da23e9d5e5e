package access

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// Identify finds who a request comes from: by its bearer token, and where it
// has none by the client certificate of its connection. Without authentication
// it is everybody. The error is that of [Access.Token].
func (a *Access) Identify(r *http.Request) (Identity, error) {
	if a == nil {
		return everybody, nil
	}
	return a.identify(r.Context(), r.Header["Authorization"], r.TLS, r.RemoteAddr)
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

// Authenticate lets requests through to next that come from somebody, whom
// [Access.From] tells then, and refuses the others with 401. Requests to the
// paths in open pass unseen. For a nil Access it is next.
func (a *Access) Authenticate(next http.Handler, open ...string) http.Handler {
	return a.guard(next, open, func(Identity) error { return nil })
}

// Require is Authenticate, and refuses those who may not do that with 403.
func (a *Access) Require(do Action, next http.Handler, open ...string) http.Handler {
	return a.guard(next, open, func(id Identity) error { return id.May(do, "", "") })
}

func (a *Access) guard(next http.Handler, open []string, allowed func(Identity) error) http.Handler {
	if a == nil {
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

// Challenge answers a request that Identify has refused: 401, and which kind of
// authentication is wanted, or 429.
func (a *Access) Challenge(w http.ResponseWriter, r *http.Request, err error) {
	challenge := `Bearer realm="sluice"`
	if len(r.Header["Authorization"]) > 0 {
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

// From is who Authenticate let in; everybody without authentication. With it,
// a context that did not come through Authenticate is nobody's.
func (a *Access) From(ctx context.Context) Identity {
	if a == nil {
		return everybody
	}
	id, _ := ctx.Value(identityKey{}).(Identity)
	return id
}
