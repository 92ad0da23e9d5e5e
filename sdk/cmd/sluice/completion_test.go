package main

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/test/sluicetest"
)

func TestCompletion(t *testing.T) {
	sidecar := start(t, sluicetest.Options{})
	fill(t, sidecar, "orders", 1)
	fill(t, sidecar, "other", 1)
	run(t, sidecar, "", "sub", "orders", "--group", "billing", "--from", "earliest", "--max", "1").wantOK(t)
	for words, want := range map[string]string{
		"pol":                             "policy",
		"policy |del":                     "delete",
		"sub |o":                          "orders other",
		"groups |s":                       "seek show slow",
		"groups show |ord":                "orders",
		"groups show orders |":            "billing",
		"groups seek --dry-run orders |b": "billing",
		"sub orders --gro":                "--group",
		"sub orders --ack |":              "auto manual",
		"sub orders --group |":            "billing",
		"completion |z":                   "zsh",
		"replay orders --order |d":        "desc",
	} {
		before, last, _ := strings.Cut(words, "|")
		args := strings.Fields(before)
		if strings.Contains(words, "|") {
			args = append(args, last)
		}
		got := run(t, sidecar, "", append([]string{"complete", "--"}, args...)...).wantOK(t)
		if found := strings.Join(strings.Fields(got.stdout), " "); found != want {
			t.Errorf("%s: %s, want %s", words, found, want)
		}
	}
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip(err)
	}
	script := run(t, sidecar, "", "completion", "bash").wantOK(t).stdout
	if out, err := exec.Command("bash", "-n", "-c", script).CombinedOutput(); err != nil {
		t.Error(fmt.Sprint(string(out), err))
	}
}
