package push

import (
	"bytes"
	"errors"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/sluice-bus/sluice/sidecar/internal/delivery"
	"github.com/sluice-bus/sluice/test/require"
)

// Standard Webhooks' own library takes what is signed, during a rotation with each of the secrets, and refuses what was tampered with.
func TestSignature(t *testing.T) {
	const was, is = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
	secrets, err := parseSecrets([]byte(is + "\n" + was + "\n"))
	require.NoError(t, err)
	h, body := http.Header{}, []byte(`{"n":1}`)
	sign(h, secrets, "evt_1", time.Now(), body)
	for _, secret := range []string{was, is} {
		library, err := standardwebhooks.NewWebhook(secret)
		require.NoError(t, err)
		if err := library.Verify(body, h); err != nil {
			t.Errorf("%s: %v", secret, err)
		}
		if library.Verify([]byte(`{"n":2}`), h) == nil {
			t.Error("a tampered body is taken")
		}
	}
	other, err := standardwebhooks.NewWebhook("whsec_" + strings.Repeat("A", 32))
	require.NoError(t, err)
	if other.Verify(body, h) == nil {
		t.Error("another's signature is taken")
	}
}

func TestSecretFiles(t *testing.T) {
	for content, want := range map[string]string{
		"":                                    "empty",
		"abc":                                 "whsec_",
		"whsec_abc":                           "24 to 64",
		"whsec_!" + strings.Repeat("A", 40):   "24 to 64",
		strings.Repeat("whsec_AAAAAAAA ", 3):  "at most 2",
		"whsec_" + strings.Repeat("AAAA", 22): "24 to 64",
	} {
		if _, err := parseSecrets([]byte(content)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", content, err, want)
		}
	}
}

func TestJudge(t *testing.T) {
	now := time.Now()
	for _, tc := range []struct {
		status     int
		retryAfter string
		want       delivery.Verdict
		after      time.Duration
	}{
		{200, "", delivery.Ack, 0},
		{204, "", delivery.Ack, 0},
		{299, "5", delivery.Ack, 0},
		{301, "5", delivery.Nack, 0},
		{404, "", delivery.Nack, 0},
		{410, "", delivery.Stop, 0},
		{500, "5", delivery.Nack, 0},
		{429, "", delivery.Nack, 0},
		{503, "soon", delivery.Nack, 0},
		{503, "-1", delivery.Nack, 0},
		{429, "5", delivery.Hold, 5 * time.Second},
		{502, "0", delivery.Hold, leastHold},
		{503, "86400", delivery.Hold, time.Hour},
		{504, now.Add(90 * time.Second).UTC().Format(http.TimeFormat), delivery.Hold, 90 * time.Second},
		{503, now.Add(-time.Hour).UTC().Format(http.TimeFormat), delivery.Hold, leastHold},
	} {
		res := &http.Response{StatusCode: tc.status, Status: http.StatusText(tc.status), Header: http.Header{"Retry-After": {tc.retryAfter}}}
		got := judge(res, now)
		if got.Verdict != tc.want || got.After > tc.after || got.After < tc.after-time.Second {
			t.Errorf("%d %q: %+v", tc.status, tc.retryAfter, got)
		}
	}
}

// Names do not lead to link-local and metadata addresses, and an entry that names one may go there.
func TestAddresses(t *testing.T) {
	for _, tc := range []struct {
		host, address string
		refused       bool
	}{
		{"example.com", "93.184.216.34", false},
		{"localhost", "127.0.0.1", false},
		{"orders.internal", "10.1.2.3", false},
		{"example.com", "169.254.169.254", true},
		{"example.com", "::ffff:169.254.169.254", true},
		{"example.com", "64:ff9b::a9fe:a9fe", true},
		{"example.com", "fe80::1%eth0", true},
		{"example.com", "fd00:ec2::254", true},
		{"example.com", "100.100.100.200", true},
		{"example.com", "0.0.0.0", true},
		{"example.com", "255.255.255.255", true},
		{"169.254.169.254", "169.254.169.254", false},
		{"169.254.1.1", "169.254.169.254", true},
		{"fe80::1", "fe80::1%eth0", false},
	} {
		if err := checkAddress(tc.host, netip.MustParseAddr(tc.address)); (err != nil) != tc.refused {
			t.Errorf("%s at %s: %v", tc.host, tc.address, err)
		}
	}
}

func TestFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "push.yaml")
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	known := func(identity string) error {
		if identity == "nobody" {
			return errors.New("there is no nobody")
		}
		return nil
	}
	write("secrets", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	write("push.yaml", "- topic: orders.created\n  group: mail\n  url: https://example.com/hooks?a=b\n  format: cloudevents\n"+
		"  max_inflight: 4\n  timeout: 1.5s\n  secret_file: secrets\n  headers: {authorization: Bearer x}\n  from: earliest\n"+
		"  filter: {key: k, tag: eu, header: {Tenant: a}}\n  identity: app\n- {topic: t.dlq, group: g, url: 'http://[::1]:1'}\n")
	f := file{path: path, known: known}
	entries, sum, err := f.load()
	require.NoError(t, err)
	e := entries[0]
	if again, same, err := f.load(); err != nil || again[0].URL != e.URL || !bytes.Equal(same, sum) {
		t.Errorf("%v: what has not changed is parsed again", err)
	}
	write("secrets", "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD")
	if again, other, err := f.load(); err != nil || bytes.Equal(again[0].secrets[0], e.secrets[0]) || bytes.Equal(other, sum) {
		t.Errorf("%v: another secret is not seen", err)
	}
	if len(entries) != 2 || len(sum) == 0 || len(e.secrets) != 1 {
		t.Errorf("%+v", entries)
	}
	if e.Format != FormatCloudEvents || e.MaxInflight != 4 || e.Timeout != 1500*time.Millisecond {
		t.Errorf("%+v", entries)
	}
	if e.Headers.Get("Authorization") != "Bearer x" || e.From != "earliest" || *e.Filter.Key != "k" || e.Filter.Headers[0].Name != "tenant" {
		t.Errorf("%+v", e)
	}
	if d := entries[1]; d.Format != FormatEvent || d.MaxInflight != 16 || d.Timeout != 30*time.Second {
		t.Errorf("%+v", d)
	}
	const head = "- topic: t\n  group: g\n  url: http://localhost\n"
	for text, want := range map[string]string{
		"topic: t": "line 1: the file must be a list",
		"- t":      "line 1: an entry must be an object",
		"- {topic: a b, group: g, url: 'http://a'}":                      "line 1: topic:",
		"- topic: t\n  group: g\n":                                       "line 1: url is missing",
		"- topic: t\n  group: a/b\n  url: http://a\n":                    "line 2: group:",
		head + "  formt: event\n":                                        `line 4: formt: unknown key (did you mean "format"?)`,
		head + "  format: xml\n":                                         "line 4: format: must be one of",
		head + "  max_inflight: 0\n":                                     "line 4: max_inflight: must be a whole number from 1 to 1000",
		head + "  timeout: 30\n":                                         "line 4: timeout:",
		head + "  from: ts\n":                                            "line 4: from:",
		head + "  headers: {Webhook-Id: x}\n":                            "line 4: headers: Webhook-Id is not",
		head + "  headers: {a b: x}\n":                                   "line 4: headers:",
		head + "  filter: {keys: x}\n":                                   `line 4: filter: line 4: keys: unknown key (did you mean "key"?)`,
		head + "  identity: nobody\n":                                    "line 1: identity: there is no nobody",
		head + "  secret_file: missing\n":                                "line 1: secret_file:",
		head + "  topic: u\n":                                            "line 4: topic: the key occurs twice",
		head + head:                                                      "line 4: topic t and group g have an entry already, on line 1",
		"- {topic: t, group: g, url: ftp://a}":                           "line 1: url: must be like",
		"- {topic: t, group: g, url: 'http://u:p@a'}":                    "line 1: url: must not have a user",
		"- {topic: t, group: g, url: 'http://a'}\n---\n- {topic: u}":     "more than one YAML document",
		"- {topic: 't', group: 'g', url: 'http://a', timeout: [1]}\n- {": "line 2",
	} {
		write("push.yaml", text)
		if _, _, err := f.load(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	write("push.yaml", "# none\n")
	if entries, _, err := f.load(); err != nil || len(entries) > 0 {
		t.Errorf("%v %v", entries, err)
	}
}
