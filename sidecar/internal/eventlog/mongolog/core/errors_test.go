package core

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

func TestAdvice(t *testing.T) {
	if got := Advice(fmt.Errorf("x: %w", mongo.CommandError{Code: CodeNoMajorityReads})); !strings.Contains(got, "enableMajorityReadConcern") {
		t.Errorf("the advice is %q", got)
	}
	if !IsNotOffered(mongo.CommandError{Code: 115}) || IsNotOffered(mongo.CommandError{Code: CodeUnauthorized}) {
		t.Error("IsNotOffered")
	}
}

func TestOpenError(t *testing.T) {
	for _, c := range []struct {
		err         error
		unavailable bool
	}{
		{errors.New("no scheme in secret"), false},
		{fmt.Errorf("see: %w", &net.DNSError{Err: "server misbehaving secret", IsTemporary: true}), true},
		{fmt.Errorf("see: %w", &net.DNSError{Err: "no such host", IsNotFound: true}), false},
	} {
		err := connectError(c.err, "mongodb+srv://me:secret@example.com/")
		if errors.Is(err, eventlog.ErrUnavailable) != c.unavailable || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v: %v", c.err, err)
		}
	}
}

func TestSecretsStayOutOfErrors(t *testing.T) {
	for _, url := range []string{
		"mongodb://user:geheim@host:port/db",
		"mongodb://user:gehe%69m@host:99999/db",
		"mongodb://user:ge/heim@host/db",
		"mongodb://user:geheim@@host/db?x=geheim",
		"mongodb://user:gehe%zzm@host/db",
		"mongodb://host/db?authMechanismProperties=AWS_SESSION_TOKEN:geheim&w=geheim",
		"mongodb://host/db?tlsCertificateKeyFilePassword=geheim&connectTimeoutMS=geheim",
	} {
		s, err := Connect(Config{URL: url})
		if err == nil {
			s.Close(func() {})
			continue
		}
		for _, secret := range []string{"geheim", "ge/heim", "gehe%69m", "gehe%zzm"} {
			if strings.Contains(err.Error(), secret) {
				t.Errorf("%s: %v", url, err)
			}
		}
	}
}

func TestErrorsThatStay(t *testing.T) {
	err := new(Store).Unavailable(t.Context(), "append", mongo.CommandError{Code: CodeUnauthorized, Message: "not authorized on db"})
	if !errors.Is(err, eventlog.ErrUnavailable) || !strings.Contains(err.Error(), "needs the role") {
		t.Errorf("%v", err)
	}
	if !IsPermanent(fmt.Errorf("x: %w", mongo.CommandError{Code: CodeAuthenticationFailed})) {
		t.Error("a wrong password is tried again")
	}
}
