package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/test/sluicetest"
)

// recorder passes requests on to a server, and keeps the last answer.
func recorder(t *testing.T, to string, last *[]byte) (address string) {
	t.Helper()
	target, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ModifyResponse: func(r *http.Response) (err error) {
			*last, err = io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(*last))
			return err
		},
	}
	server := httptest.NewServer(proxy)
	t.Cleanup(server.Close)
	return server.URL
}

// TestJSONIsTheServersAnswer: -o json prints what the server sent, and nothing else.
func TestJSONIsTheServersAnswer(t *testing.T) {
	sidecar := start(t, sluicetest.Options{})
	fill(t, sidecar, "t", 3)
	run(t, sidecar, "", "sub", "t", "--group", "g", "--from", "earliest", "--max", "1").wantOK(t)
	run(t, sidecar, "", "pub", "t", "1", "--id", "later", "--delay", "1h").wantOK(t)
	plane := startPlane(t, sluicetest.ControlPlaneOptions{})
	plane.ok("policy", "set", "t", "publish.rate=1", `schema.json_schema={"type":"object"}`)
	var answer []byte
	address, planeAddress := recorder(t, sidecar.URL, &answer), recorder(t, plane.URL, &answer)
	for _, command := range []string{
		"status", "topics", "topics delete t --dry-run", "groups list t", "groups show t g", "groups members t g", "trace t e0",
		"scheduled list t", "groups seek t g --to earliest --dry-run", "policy list", "policy get t", "policy history t", "schema list t",
		"fleet", "fleet topics", "policy delete t --dry-run",
	} {
		args := append(strings.Fields(command), "-o", "json")
		switch strings.Fields(command)[0] {
		case "policy", "schema", "fleet":
			args = append(args, "--control-plane-url", planeAddress)
		case "status":
			args = append(args, "--ops-url", address)
		default:
			args = append(args, "--url", address)
		}
		got := run(t, &sluicetest.Sidecar{}, "", args...).wantOK(t)
		if got.stdout != strings.TrimSpace(string(answer))+"\n" {
			t.Errorf("sluice %s\n%s\nand the server's answer is\n%s", command, got.stdout, answer)
		}
	}
}

// YAML has the same values as JSON, whatever they look like.
func TestYAML(t *testing.T) {
	var out bytes.Buffer
	const text = `{"b":[1,1e400,12345678901234567890,"yes","1","\ud83d\ude00 a: b","x\ny",null,true,{}],"a":"","~":[]}`
	if err := formatYAML.writeText(&out, []byte(text)); err != nil {
		t.Fatal(err)
	}
	want(t, out.String(), `---
b:
  - 1
  - 1e400
  - 12345678901234567890
  - "yes"
  - "1"
  - "\U0001F600 a: b"
  - |-
    x
    y
  - null
  - true
  - {}
a: ""
"~": []
`)
}

// A table fits the terminal: its longest cells are cut. It is whole elsewhere, and with -o wide.
func TestTableFits(t *testing.T) {
	rows := [][]string{{"orders.created.in.europe", "12", "a long reason for which it was refused", "more"}}
	for _, c := range []struct {
		columns int
		wide    bool
		want    string
	}{
		{0, false, "TOPIC                     N   REASON\norders.created.in.europe  12  a long reason for which it was refused\n"},
		{40, false, "TOPIC              N   REASON\norders.created.i…  12  a long reason fo…\n"},
		{10, false, "TOPIC     N   REASON\norders.…  12  a long …\n"},
		{40, true, "TOPIC                     N   REASON                                  WIDE\n" +
			"orders.created.in.europe  12  a long reason for which it was refused  more\n"},
	} {
		var out bytes.Buffer
		s := &sheet{Writer: &out, columns: c.columns, wide: c.wide}
		if err := s.table([]string{"TOPIC", "N", "REASON"}, []string{"WIDE"}, rows); err != nil {
			t.Fatal(err)
		}
		want(t, out.String(), c.want)
	}
}
