package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/test/sluicetest"
)

// deadServer answers as a sidecar with two dead letters, on a page each.
func deadServer(t *testing.T, got *[]string) string {
	const letter = `{"dlq_id":"dlq-%d","id":"e%d","group":"billing","reason":"no stock","attempts":25,"died_at":1723140060000,` +
		`"state":"%s","event":{"id":"e%d","ts":1723140000000,"topic":"orders","partition":0,"seq":%d,"payload":{"n":1}}}`
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/topics/orders/dlq", func(w http.ResponseWriter, r *http.Request) {
		*got = append(*got, r.URL.RawQuery)
		if r.URL.Query().Get("cursor") == "" {
			fmt.Fprintf(w, `{"total":2,"dead_letters":[`+letter+`],"next":"c"}`, 1, 1, "dead", 1, 1)
		} else {
			fmt.Fprintf(w, `{"total":2,"dead_letters":[`+letter+`]}`, 2, 2, "redriven", 2, 2)
		}
	})
	for verb, answer := range map[string]string{
		"redrive": "{\"done\":0,\"of\":2}\n{\"done\":2,\"of\":2,\"ok\":true}\n",
		"discard": "{\"done\":0,\"of\":2}\n{\"error\":\"away\",\"code\":\"store_unavailable\"}\n",
	} {
		mux.HandleFunc("POST /v1/topics/orders/dlq/"+verb, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			*got = append(*got, verb+" "+string(body))
			_, _ = io.WriteString(w, answer)
		})
	}
	mux.HandleFunc("POST /v1/topics/broken/dlq/redrive", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w,
			"{\"done\":0,\"of\":2}\n")
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL
}

func TestDeadLetterCommands(t *testing.T) {
	sidecar := start(t, sluicetest.Options{})
	for _, c := range []struct{ args, stdout, asked string }{
		{"list orders", "DLQ ID  EVENT  GROUP    ATTEMPTS  STATE     DIED      REASON\n" +
			"dlq-1   e1     billing  25        dead      DAYS ago  \"no stock\"\n" +
			"dlq-2   e2     billing  25        redriven  DAYS ago  \"no stock\"\n", ""},
		{"list orders -o wide --max 1", "DLQ ID  EVENT  GROUP    ATTEMPTS  STATE  DIED                                 REASON\n" +
			"dlq-1   e1     billing  25        dead   2024-08-08T18:01:00.000Z (DAYS ago)  \"no stock\"\n\n" +
			"1 of 2 are shown: --max 0 shows all\n", ""},
		{"list orders --max 1 --group billing --oldest -o json", `{"total":2,"dead_letters":[{"dlq_id":"dlq-1","id":"e1",`,
			"group=billing&limit=1&order=asc"},
		{"show orders dlq-2", "dlq-2: redriven, of group billing after 25 attempts at 2024-08-08T18:01:00.000Z\nreason: \"no stock\"\n\n" +
			"2024-08-08T18:00:00.000Z  0/2  e2  {\"n\":1}\n", ""},
		{"redrive orders --group billing --dry-run", "1 would be redriven\n", ""},
		{"discard orders dlq-1 dlq-2 --dry-run", "2 would be discarded\n", ""},
		{"redrive orders --group billing --reason x --before 2024-08-08T18:01:00Z --rate 5", "2 redriven\n",
			`redrive {"group":"billing","reason":"x","before":1723140060000,"rate":5}`},
		{"redrive orders dlq-1 -o json", "{\"dry_run\":false,\"of\":2}\n", `redrive {"dlq_ids":["dlq-1"],"rate":100}`},
	} {
		var asked []string
		url := deadServer(t, &asked)
		got := run(t, sidecar, "", append(append([]string{"dlq"}, strings.Fields(c.args)...), "--url", url)...).wantOK(t)
		got.stdout = days.ReplaceAllString(got.stdout, "DAYS ago")
		if !strings.HasPrefix(got.stdout, c.stdout) {
			t.Errorf("sluice dlq %s:\n%s\nwant\n%s", c.args, got.stdout, c.stdout)
		}
		if c.asked != "" && asked[0] != c.asked {
			t.Errorf("sluice dlq %s asks %q; want %q", c.args, asked[0], c.asked)
		}
	}
	var asked []string
	url := deadServer(t, &asked)
	for args, says := range map[string]string{
		"discard orders dlq-1":                  "--yes",
		"discard orders dlq-1 --yes":            "store_unavailable",
		"redrive broken dlq-1":                  "broke off",
		"show orders dlq-3":                     "not_found",
		"redrive orders":                        "dlq-ids or --group",
		"redrive orders x --reason y":           "--reason",
		"redrive orders --group g --before now": "--before",
		"discard orders --group g --reason= -y": "--reason: must not be empty",
		"redrive orders --group=":               "--group: must not be empty",
		"redrive orders --group g --before=":    "is no time",
		"list orders --reason=":                 "--reason: must not be empty",
	} {
		got := run(t, sidecar, "", append(append([]string{"dlq"}, strings.Fields(args)...), "--url", url)...)
		if got.status == 0 || !strings.Contains(got.stderr, says) {
			t.Errorf("sluice dlq %s: status %d, %s; want %q", args, got.status, got.stderr, says)
		}
	}
}
