package pebblelog

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/uuid"

	"github.com/sluice-bus/sluice/internal/private"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/pebblelog/journal"
)

// A backup is a tar of the folder's files as they are at one moment: FORMAT, the index, the journal up to its end,
// and ACKED. Events go on being published meanwhile. Restore makes a folder of it, with another store id.

// backupFolder has Pebble's checkpoint while a backup is taken; the next one removes what a crash has left.
const backupFolder = "backup.tmp"

// Backup writes a backup. It has everything that was acknowledged before the call.
func (l *Log) Backup(ctx context.Context, w io.Writer) (err error) {
	if err := l.enter(ctx); err != nil {
		return err
	}
	defer l.leave()
	if err := l.backups.Lock(ctx); err != nil {
		return err
	}
	defer l.backups.Unlock()
	// As long as a snapshot is open no segment is dropped.
	pin := &snapshot{log: l}
	l.snapshots.Store(pin, nil)
	defer func() {
		l.snapshots.Delete(pin)
		l.reclaim.wake.Set()
	}()
	dir := l.fsys.PathJoin(l.dir, backupFolder)
	if err := l.fsys.RemoveAll(dir); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.fsys.RemoveAll(dir)) }()
	// The checkpoint has the tables alone. What they do not have follows from the journal, whose end is read later.
	if err := l.db.Checkpoint(dir); err != nil {
		return err
	}
	if err := l.journal.Sync(); err != nil {
		return l.health.err()
	}
	out := tar.NewWriter(w)
	if err := l.backupFile(ctx, out, formatFile, l.fsys.PathJoin(l.dir, formatFile), -1); err != nil {
		return err
	}
	names, err := l.fsys.List(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := l.backupFile(ctx, out, path.Join(dbFolder, name), l.fsys.PathJoin(dir, name), -1); err != nil {
			return err
		}
	}
	files, acked := l.journal.Files()
	for _, f := range files {
		if err := l.backupFile(ctx, out, path.Join(journal.Folder, f.Name), l.fsys.PathJoin(l.dir, journal.Folder, f.Name), f.Size); err != nil {
			return err
		}
	}
	if err := writeEntry(out, journal.AckedFile, acked); err != nil {
		return err
	}
	return out.Close()
}

// backupFile adds the first size bytes of a file; -1: all of it.
func (l *Log) backupFile(ctx context.Context, out *tar.Writer, name, from string, size int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	file, err := l.fsys.Open(from, vfs.SequentialReadsOption)
	if err != nil {
		return err
	}
	defer file.Close()
	if size < 0 {
		info, err := file.Stat()
		if err != nil {
			return err
		}
		size = info.Size()
	}
	if err := out.WriteHeader(&tar.Header{Name: name, Size: size, Mode: int64(private.File), ModTime: time.Now()}); err != nil {
		return err
	}
	_, err = io.CopyN(out, file, size)
	return err
}

func writeEntry(out *tar.Writer, name string, text []byte) error {
	err := out.WriteHeader(&tar.Header{Name: name, Size: int64(len(text)), Mode: int64(private.File), ModTime: time.Now()})
	if err == nil {
		_, err = out.Write(text)
	}
	return err
}

// Restore makes a data folder, which must be new or empty, of a backup. The store gets an id of its own, so that it
// is not taken for the one that was backed up. A folder that Restore does not finish has no FORMAT, so it is refused.
func Restore(dir string, backup io.Reader) error {
	fsys := privateFS{vfs.Default}
	if err := fsys.MkdirAll(dir, private.Folder); err != nil {
		return err
	}
	if names, err := fsys.List(dir); err != nil || len(names) > 0 {
		return errors.Join(err, fmt.Errorf("%s is not empty; choose a new or an empty folder with --data-dir", dir))
	}
	r := restoring{fsys: fsys, dir: dir, id: uuid.New()}
	in := tar.NewReader(backup)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = r.file(h.Name, in)
		}
		if err != nil {
			return fmt.Errorf("the backup: %w", err)
		}
	}
	return r.finish()
}

// restoring is a Restore under way.
type restoring struct {
	fsys   vfs.FS
	dir    string
	id     uuid.UUID
	format format
	acked  bool
}

func (r *restoring) file(name string, in io.Reader) error {
	folder, base := path.Split(path.Clean(name))
	switch {
	case folder == "" && name == formatFile:
		if err := json.NewDecoder(in).Decode(&r.format); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	case folder == "" && name == journal.AckedFile:
		r.acked = true
	case folder == journal.Folder+"/" && !strings.ContainsAny(base, `/\`):
		was, err := uuid.Parse(r.format.StoreID)
		if err == nil {
			in, err = journal.Adopt(in, base, was, r.id)
		}
		if err != nil {
			return err
		}
	case folder == dbFolder+"/" && !strings.ContainsAny(base, `/\`):
	default:
		return fmt.Errorf("%q is no file of a data folder", name)
	}
	to := filepath.Join(r.dir, filepath.FromSlash(name))
	if err := r.fsys.MkdirAll(filepath.Dir(to), private.Folder); err != nil {
		return err
	}
	file, err := r.fsys.Create(to, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, in)
	return errors.Join(err, file.Sync(), file.Close())
}

// finish makes the folder one of this program, and looks whether a log opens in it.
func (r *restoring) finish() error {
	if !r.acked || r.format.Format != formatNumber {
		return fmt.Errorf("the backup is incomplete or of another format than %d", formatNumber)
	}
	for _, folder := range []string{dbFolder, journal.Folder} {
		if err := syncFolder(r.fsys, filepath.Join(r.dir, folder)); err != nil {
			return err
		}
	}
	r.format.StoreID = r.id.String()
	text, err := json.Marshal(r.format)
	if err != nil {
		return err
	}
	if err := writeWhole(r.fsys, r.dir, formatFile, append(text, '\n')); err != nil {
		return err
	}
	l, err := Open(Options{Dir: r.dir})
	if err != nil {
		return err
	}
	return l.Close()
}
