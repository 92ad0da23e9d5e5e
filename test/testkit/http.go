package testkit

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/test/require"
)

// Patience bounds every wait for something that must happen, on a slow machine too.
const Patience = time.Minute

// Slack is what a slow machine may add to a time that the contract promises.
const Slack = 15 * time.Second

// Answer is an HTTP response with its body.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// JSON is the body, which must be an object.
func (a Answer) JSON(t testing.TB) Object { t.Helper(); return ParseObject(t, a.Body) }

// Call sends a request; headers are "Name: value".
func Call(t testing.TB, method, url, body string, headers ...string) Answer {
	t.Helper()
	return CallWith(t, http.DefaultClient, method, url, body, headers...)
}

// CallWith sends it through a client.
func CallWith(t testing.TB, client *http.Client, method, url, body string, headers ...string) Answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	require.NoError(t, err)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Host" {
			req.Host = value
		} else {
			req.Header.Add(name, value)
		}
	}
	res, err := client.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return Answer{res.StatusCode, res.Header, b}
}

// Eventually calls holds until it returns true. After Patience the test fails.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(Patience); !holds(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v for: %s", Patience, what)
		}
	}
}
