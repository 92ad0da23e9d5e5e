package embedded

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"

	"github.com/sluice-bus/sluice/internal/private"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/pebblelog"
)

// BackupSocket is the socket in the data folder on which the running sidecar gives a backup: its answer to GET / is a
// tar (pebblelog.Log.Backup). Who may read the folder's files may ask.
const BackupSocket = "backup.sock"

// backups serves the socket until it is closed.
type backups struct {
	server *http.Server
	done   chan struct{}
}

// serveBackups listens on the socket. Where that cannot be, as where the folder's path is too long for a socket, there
// are no backups, and the log says so.
func serveBackups(dir string, log *pebblelog.Log, logger *slog.Logger) *backups {
	path := filepath.Join(dir, BackupSocket)
	err := os.Remove(path) // of a process that was killed: this one has the folder's lock
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	var l net.Listener
	if err == nil {
		l, err = net.Listen("unix", path)
	}
	if err == nil {
		err = os.Chmod(path, private.File)
	}
	if err != nil {
		logger.Warn("no backups can be taken while this sidecar runs", "socket", path, "error", err)
		return nil
	}
	b := &backups{done: make(chan struct{})}
	b.server = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := log.Backup(r.Context(), w); err != nil {
			logger.Error("a backup has failed", "error", err)
			panic(http.ErrAbortHandler) // so that the client does not take it for whole
		}
		logger.Info("a backup was taken")
	})}
	go func() {
		defer close(b.done)
		_ = b.server.Serve(l)
	}()
	return b
}

func (b *backups) close() {
	if b != nil {
		_ = b.server.Close()
		<-b.done
	}
}

// Backup asks the sidecar that runs on a folder for a backup.
func Backup(ctx context.Context, dir string, to io.Writer) error {
	path := filepath.Join(dir, BackupSocket)
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://sidecar/", nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(req)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	_, err = io.Copy(to, answer.Body)
	return err
}
