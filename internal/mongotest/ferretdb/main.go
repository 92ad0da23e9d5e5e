// Command ferretdb is FerretDB 1.24, embedded, on SQLite, for tests that Sluice works on a server that is only compatible
// with MongoDB. It is a module of its own, so that nothing of it reaches the programs' dependencies, and knows
// nothing of Sluice.
//
// Once it serves, it prints one line of JSON to stdout: {"ready":true,"uri":"mongodb://127.0.0.1:PORT/"}. It ends on
// SIGTERM and SIGINT, and with --exit-with-stdin also when its standard input does, so that it cannot outlive a test
// process that was killed.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/FerretDB/FerretDB/ferretdb"
)

// drainTimeout is how long clients that stay connected may hold up the end: FerretDB itself would give them three
// seconds. What was answered is in the files by then, and SQLite recovers from what was not.
const drainTimeout = 200 * time.Millisecond

type config struct {
	listen        string
	dataDir       string
	memory        bool
	synchronous   string
	exitWithStdin bool
}

func main() {
	var c config
	flag.StringVar(&c.listen, "listen", "127.0.0.1:27017", "host:port to serve on; port 0 picks a free one")
	flag.StringVar(&c.dataDir, "data-dir", "", "folder for the databases, made where it is missing; they survive kills and restarts")
	flag.BoolVar(&c.memory, "mem", false,
		"keep the databases in memory: about twice as fast with many writers, but nothing survives the process, and a cursor that was not read to its end blocks its database")
	flag.StringVar(&c.synchronous, "synchronous", "normal",
		"SQLite's pragma: off, normal (no fsync per write: answered writes survive a kill, but not a power cut), full")
	flag.BoolVar(&c.exitWithStdin, "exit-with-stdin", false, "end when standard input ends")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "mongotest-ferretdb: unexpected argument", flag.Arg(0))
		os.Exit(2)
	}
	if err := run(c); err != nil {
		fmt.Fprintln(os.Stderr, "mongotest-ferretdb:", err)
		os.Exit(1)
	}
}

func run(c config) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if c.exitWithStdin {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		// Nobody waits for this reader: it ends with the process at the latest.
		go func() {
			io.Copy(io.Discard, os.Stdin)
			cancel()
		}()
	}

	databases, err := sqliteURL(c)
	if err != nil {
		return err
	}
	db, err := ferretdb.New(&ferretdb.Config{
		Listener:  ferretdb.ListenerConfig{TCP: c.listen},
		Logger:    slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		Handler:   "sqlite",
		SQLiteURL: databases,
	})
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- db.Run(ctx) }()

	uri := db.MongoDBURI()
	if err := awaitServing(ctx, uri); err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(map[string]any{"ready": true, "uri": uri}); err != nil {
		return err
	}

	<-ctx.Done()
	select {
	case err := <-ended:
		return err
	case <-time.After(drainTimeout):
		return nil
	}
}

// sqliteURL is the folder of the databases as FerretDB wants it.
func sqliteURL(c config) (string, error) {
	pragmas := url.Values{"_pragma": {"synchronous(" + c.synchronous + ")"}}
	switch c.synchronous {
	case "off", "normal", "full":
	default:
		return "", fmt.Errorf("--synchronous %q: must be off, normal or full", c.synchronous)
	}
	dir := c.dataDir
	if c.memory {
		pragmas.Set("mode", "memory")
		dir = os.TempDir() // looked at, but nothing is written to it
	} else if dir == "" {
		return "", errors.New("--data-dir or --mem must be given")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	u := url.URL{Scheme: "file", Path: filepath.ToSlash(dir) + "/", RawQuery: pragmas.Encode(), OmitHost: true}
	return u.String(), nil
}

// awaitServing returns once the server accepts connections.
func awaitServing(ctx context.Context, uri string) error {
	u, err := url.Parse(uri)
	if err != nil {
		return err
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return err
	}
	return conn.Close()
}
