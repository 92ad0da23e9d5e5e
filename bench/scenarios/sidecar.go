package scenarios

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-bus/sluice/bench"
	"github.com/sluice-bus/sluice/bench/internal/load"
	"github.com/sluice-bus/sluice/internal/launch"
	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// patience is how long may pass without an event, or an answer, before the rest is given up: a takeover on a busy machine takes
// its time. metricsWithin is how long a sidecar may take to say its metrics.
const (
	patience      = time.Minute
	metricsWithin = 20 * time.Second
)

// Sidecar is a sidecar that is measured.
type Sidecar struct {
	*launch.Program        // nil: it runs, and was not started here
	URL, Replay     string // of its app and replay APIs
	ops             string
	token           string
}

// StartSidecar starts a sidecar in a folder of the lab, with flags beside the usual ones.
func (l *Lab) StartSidecar(ctx context.Context, dir string, flags ...string) (*Sidecar, error) {
	path, err := launch.Find("sluice-sidecar")
	if err != nil {
		return nil, err
	}
	args := append([]string{
		"--listen", "127.0.0.1:0", "--replay-listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0",
		"--data-dir", filepath.Join(dir, "data"),
	}, flags...)
	if l.Store != "" {
		args = append(args, "--store", l.Store)
	}
	program, err := launch.Start(ctx, dir, nil, path, args...)
	if err != nil {
		return nil, err
	}
	return &Sidecar{
		Program: program, URL: "http://" + program.Ready["listen"], Replay: "http://" + program.Ready["replay"],
		ops: "http://" + program.Ready["ops"],
	}, nil
}

// StartUnlimited starts a sidecar without limits, with flags beside the usual ones.
func (l *Lab) StartUnlimited(ctx context.Context, flags ...string) (*Sidecar, error) {
	dir, policies, err := l.policies(bench.Policies)
	if err != nil {
		return nil, err
	}
	return l.StartSidecar(ctx, dir, append([]string{"--policies", policies, "--node-id", filepath.Base(dir)}, flags...)...)
}

// policies makes a folder with a file of policies in it.
func (l *Lab) policies(text string) (dir, file string, err error) {
	if dir, err = l.room(); err != nil {
		return "", "", err
	}
	file = filepath.Join(dir, "policies.yaml")
	return dir, file, os.WriteFile(file, []byte(text), 0o600)
}

// Running is the sidecar that runs at a URL.
func Running(ctx context.Context, url, token string) (*Sidecar, error) {
	listeners, err := (&admin.HTTP{AppURL: url, Token: token}).Listeners(ctx)
	if err != nil {
		return nil, err
	}
	return &Sidecar{URL: url, Replay: listeners.Replay, ops: listeners.Ops, token: token}, nil
}

// Publishing is a load on a fresh topic.
func (s *Sidecar) Publishing(p Params) load.Publishing {
	return load.Publishing{
		URL: s.URL, Token: s.token, Transport: p.Transport, Topic: load.FreshName("publish"), Size: p.Size, Connections: p.Connections,
		Depth: p.Depth, Batch: p.Batch, Keys: p.Keys, Rate: p.Rate, Topics: p.Topics, Patience: patience,
	}
}

// Consuming is one consumer of a fresh topic, in a fresh group.
func (s *Sidecar) Consuming(p Params) load.Consuming {
	return load.Consuming{
		URL: s.URL, Token: s.token, Topic: load.FreshName("subscribe"), Group: "bench", From: wire.FromEarliest, Events: p.Events,
		Connections: 1, Window: 1000, MaxBatch: p.Frame, Patience: patience,
	}
}

// Processes is the sidecar's, where it was started here.
func (s *Sidecar) Processes() []int {
	if s.Program == nil {
		return nil
	}
	return []int{s.PID()}
}

// Close stops the sidecar, where it was started here.
func (s *Sidecar) Close() error {
	if s.Program == nil {
		return nil
	}
	return s.Stop()
}

// Appends reads the sidecar's metrics.
func (s *Sidecar) Appends(ctx context.Context) (n int64, took time.Duration, err error) {
	sums, err := s.Metrics(ctx)
	seconds := sums["sluice_store_append_duration_seconds_sum"]
	return int64(sums["sluice_store_append_duration_seconds_count"]), time.Duration(seconds * float64(time.Second)), err
}

// Metrics returns the sidecar's metrics, each summed over its labels.
func (s *Sidecar) Metrics(ctx context.Context) (sums map[string]float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, metricsWithin)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.ops+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	if s.token != "" {
		request.Header.Set("Authorization", "Bearer "+s.token)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, answer.Body.Close()) }()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s/metrics answers %s", s.ops, answer.Status)
	}
	sums = map[string]float64{}
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		name, rest, _ := strings.Cut(lines.Text(), " ")
		name, labels, labelled := strings.Cut(name, "{")
		if labelled { // a label's value may hold spaces
			_, rest, _ = strings.Cut(labels+" "+rest, "} ")
		}
		if value, err := strconv.ParseFloat(rest, 64); err == nil {
			sums[name] += value
		}
	}
	return sums, lines.Err()
}
