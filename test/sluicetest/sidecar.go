package sluicetest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar"
)

// A Sidecar is a real one, whose log is in memory, or a process of its own. All its APIs are on one
// listener, at URL, where requests and answers can be lost and refused.
type Sidecar struct {
	URL string

	opts  Options
	dir   string // of the policies, and of a process's data
	run   atomic.Pointer[run]
	front *httptest.Server
	http  *http.Transport
	links sync.WaitGroup

	asking sync.Mutex // one of the options' functions is called at a time

	mu        sync.Mutex
	open      map[*link]struct{}
	down      bool
	extended  map[groupName]int
	forgotten uint64 // events; guarded by asking
}

// run is the real sidecar.
type run struct {
	app, replay, ops string // host:port
	stop             context.CancelFunc
	ended            chan error // holds what it ended with
}

type groupName struct{ topic, group string }

// Fate is the outcome of a request.
type Fate int

// A request is served; or its connection breaks before the request has an effect, or after that and
// before the answer; or the request is ignored and the connection stays.
const (
	Served Fate = iota
	BrokenBefore
	BrokenAfter
	Ignored
)

// Options are the differences from a sidecar that accepts everything at once. Options about
// requests apply to WebSockets alone.
type Options struct {
	// Program is the path of a sluice-sidecar, which is run as a process with its data in a
	// temporary folder, and which Restart kills; "": the sidecar is in the test's own process, in
	// memory.
	Program string
	// Policies are those in force, as a file of policies has them. "": a topic has one partition,
	// and nothing is limited.
	Policies string
	// Refuse is asked before an event is accepted; an error refuses it. Calls come one at a time.
	Refuse func(*wire.Event) *wire.Error
	// RefuseSettling is asked before an ACK or NACK has an effect; an error refuses it. Calls come
	// one at a time.
	RefuseSettling func(op string, ids []string) *wire.Error
	// RefuseToken is asked about the token of an AUTH; an error refuses it, which ends the
	// connection. Calls come one at a time.
	RefuseToken func(token string) *wire.Error
	// Fate decides about a request, by its op. It may be called by several goroutines at once.
	Fate func(op string) Fate
	// AckDeadline is the ack timeout of the default policies (30 s).
	AckDeadline time.Duration
	// FrameBytes ends connections that send a longer frame, with the status 1009; 0: the sidecar's
	// default.
	FrameBytes int
	// Burst is the burst of the topics' token buckets in the default policies. No larger batch can
	// pass. 0: there are no buckets.
	Burst int
	// SweepEvery is the time between two sweeps of what retention and compaction remove (5 s).
	SweepEvery time.Duration
	// Forget keeps no events: a publish is only answered.
	Forget bool
	// BreakExportAfter ends every export abnormally behind that many lines; 0 breaks none.
	BreakExportAfter int
}

// manyPerSecond fills a token bucket again at once.
const manyPerSecond = 1_000_000

func (o Options) policies() string {
	if o.Policies != "" {
		return o.Policies
	}
	publish := "{rate: 0}"
	if o.Burst > 0 {
		publish = fmt.Sprintf("{rate: %d, burst: %d}", manyPerSecond, o.Burst)
	}
	return fmt.Sprintf("- name: \"*\"\n  connection: {rate: 0}\n  publish: %s\n  delivery: {ack_timeout: %s}\n  partitions: 1\n",
		publish, cmp.Or(o.AckDeadline, 30*time.Second))
}

// Start starts a sidecar. Close ends it. It panics where it cannot, as with policies that are not
// valid.
func Start(opts Options) *Sidecar {
	s := &Sidecar{
		opts: opts, http: &http.Transport{},
		open: map[*link]struct{}{}, extended: map[groupName]int{},
	}
	if err := s.start(); err != nil {
		panic(fmt.Sprint("sluicetest: ", err))
	}
	return s
}

// nodeID is the sidecar's node id.
const nodeID = "sluicetest"

func (s *Sidecar) start() (err error) {
	if s.dir, err = os.MkdirTemp("", "sluicetest"); err != nil {
		return err
	}
	if err = os.WriteFile(s.policies(), []byte(s.opts.policies()), 0o600); err == nil {
		if s.opts.Program != "" {
			err = s.startProcess()
		} else {
			err = s.startInMemory()
		}
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(s.dir))
	}
	s.front = httptest.NewServer(s.routes())
	s.URL = s.front.URL
	return nil
}

func (s *Sidecar) policies() string { return filepath.Join(s.dir, "policies.yaml") }

func (s *Sidecar) startInMemory() error {
	var cfg sidecar.Config
	program.Defaults(&cfg)
	cfg.Listen, cfg.ReplayListen, cfg.OpsListen = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	cfg.DataDir, cfg.InMemory, cfg.NodeID = s.dir, true, nodeID
	cfg.Version, cfg.Logger = "test", slog.New(slog.DiscardHandler)
	cfg.RetentionInterval = cmp.Or(s.opts.SweepEvery, cfg.RetentionInterval)
	cfg.Policies = s.policies()
	if n := s.opts.FrameBytes; n > 0 {
		cfg.Limits = map[string]int{"frame": n, "payload": min(n, wire.DefaultLimits().PayloadBytes)}
	}
	ctx, stop := context.WithCancel(context.Background())
	real, err := sidecar.New(ctx, cfg)
	if err != nil {
		stop()
		return err
	}
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- real.Run(ctx, func() error { close(ready); return nil }) }()
	select {
	case <-ready:
	case err := <-ended:
		stop()
		return err
	}
	r := &run{stop: stop, ended: ended}
	r.app, r.replay, r.ops, _ = real.Addresses()
	s.run.Store(r)
	return nil
}

// halt ends the real sidecar, and waits until it has ended.
func (s *Sidecar) halt() {
	r := s.run.Load()
	r.stop()
	<-r.ended
	s.http.CloseIdleConnections()
}

// routes puts the three APIs on one listener.
func (s *Sidecar) routes() http.Handler {
	to := func(addr func(*run) string) *httputil.ReverseProxy {
		return &httputil.ReverseProxy{
			Rewrite: func(r *httputil.ProxyRequest) {
				r.SetURL(&url.URL{Scheme: "http", Host: addr(s.run.Load())})
			},
			Transport: s.http, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0), // who asked is told
			ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		}
	}
	exports := to(func(r *run) string { return r.replay })
	exports.ModifyResponse = func(r *http.Response) error {
		if most := s.opts.BreakExportAfter; most > 0 {
			r.Body = &brokenExport{ReadCloser: r.Body, lines: most}
		}
		return nil
	}
	mux := http.NewServeMux()
	mux.Handle("/", to(func(r *run) string { return r.app }))
	mux.HandleFunc("GET /ws", s.serveSocket)
	mux.Handle("/replay", to(func(r *run) string { return r.replay }))
	mux.Handle("/export", exports)
	for _, path := range []string{"/v1/status", "/healthz", "/readyz", "/metrics"} {
		mux.Handle(path, to(func(r *run) string { return r.ops }))
	}
	return mux
}

// brokenExport fails behind so many lines.
type brokenExport struct {
	io.ReadCloser
	lines int
}

func (b *brokenExport) Read(p []byte) (int, error) {
	if b.lines == 0 {
		return 0, io.ErrUnexpectedEOF
	}
	n, err := b.ReadCloser.Read(p)
	for i, c := range p[:n] {
		if c != '\n' {
			continue
		}
		if b.lines--; b.lines == 0 {
			return i + 1, nil
		}
	}
	return n, err
}

// Close breaks all connections, stops the sidecar and waits for its end.
func (s *Sidecar) Close() {
	s.SetDown(true)
	s.front.CloseClientConnections()
	s.front.Close()
	s.links.Wait()
	s.halt()
	_ = os.RemoveAll(s.dir) // its content is not needed any more
}

// Disconnect breaks all WebSocket connections without a good-bye.
func (s *Sidecar) Disconnect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.open {
		l.breakOff()
	}
}

// SetDown breaks all WebSocket connections and makes new ones fail, or takes them again.
func (s *Sidecar) SetDown(down bool) {
	s.mu.Lock()
	s.down = down
	s.mu.Unlock()
	if down {
		s.Disconnect()
	}
}

// Connections returns how many WebSocket connections there are.
func (s *Sidecar) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

// Extended returns how often a group's deadlines were extended.
func (s *Sidecar) Extended(topic, group string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.extended[groupName{topic, group}]
}

// Acked returns how many events a group has acked.
func (s *Sidecar) Acked(topic, group string) int {
	sample := fmt.Sprintf("sluice_events_acked_total{group=%q,topic=%q} ", group, topic)
	r, err := (&http.Client{Transport: s.http}).Get("http://" + s.run.Load().ops + "/metrics")
	if err != nil {
		panic(fmt.Sprint("sluicetest: ", err))
	}
	defer r.Body.Close()
	metrics, err := io.ReadAll(r.Body)
	n := 0.
	for line := range bytes.Lines(metrics) {
		if value, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte(sample)); ok {
			n, err = strconv.ParseFloat(string(value), 64)
		}
	}
	if err != nil {
		panic(fmt.Sprint("sluicetest: ", err))
	}
	return int(n)
}

// Events returns what a topic holds, by partition and seq. It panics where it cannot ask for them.
func (s *Sidecar) Events(topic string) (events []wire.Event) {
	h := &admin.HTTP{ReplayURL: "http://" + s.run.Load().replay}
	defer h.CloseIdle()
	for e, err := range h.Export(context.Background(), admin.ExportQuery{Topic: topic}) {
		if err != nil {
			panic(fmt.Sprint("sluicetest: ", err))
		}
		events = append(events, e)
	}
	slices.SortFunc(events, func(a, b wire.Event) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Seq, b.Seq))
	})
	return events
}
