// Command ferretdb is FerretDB 1.24, embedded, on SQLite, for tests that Sluice works on a server
// that is only compatible with MongoDB. It is a module of its own, so that nothing of it reaches
// the programs' dependencies, and knows nothing of Sluice.
//
// Once it serves, on a free port of the loopback interface, it prints one line of JSON to stdout:
// {"ready":true,"uri":"mongodb://127.0.0.1:PORT/"}. It ends when its standard input does, so that
// it cannot outlive a test process that was killed.
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
	"path/filepath"
	"time"

	"github.com/FerretDB/FerretDB/ferretdb"
)

// drainTimeout is how long clients that stay connected may hold up the end: FerretDB itself would
// give them three seconds. Answered writes are in the files by then, and SQLite recovers from the
// others.
const drainTimeout = 200 * time.Millisecond

func main() {
	dataDir := flag.String("data-dir", "", "folder for the databases, made where it is missing; they survive kills and restarts")
	flag.Parse()
	if err := run(*dataDir); err != nil {
		fmt.Fprintln(os.Stderr, "mongotest-ferretdb:", err)
		os.Exit(1)
	}
}

func run(dataDir string) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	// Nobody waits for this reader: it ends with the process at the latest.
	go func() {
		io.Copy(io.Discard, os.Stdin)
		cancel()
	}()

	databases, err := sqliteURL(dataDir)
	if err != nil {
		return err
	}
	db, err := ferretdb.New(&ferretdb.Config{
		Listener:  ferretdb.ListenerConfig{TCP: "127.0.0.1:0"},
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

// sqliteURL is the folder of the databases as FerretDB wants it. Its writes are not synced:
// answered ones survive a kill, but not a power cut.
func sqliteURL(dir string) (string, error) {
	if dir == "" {
		return "", errors.New("--data-dir must be given")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	pragmas := url.Values{"_pragma": {"synchronous(normal)"}}
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
