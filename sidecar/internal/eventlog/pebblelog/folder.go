package pebblelog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/uuid"

	"github.com/sluice-bus/sluice/internal/setting"
)

// The data folder:
//
//	FORMAT   what the folder is: the JSON of format, written once
//	LOCK     locked while a sidecar runs on the folder: the JSON of Owner
//	journal/ the truth: every change since the segments there, in order (journal/format.go)
//	ACKED    how much of the journal was acknowledged
//	db/      the index, Pebble's files: derived from the journal, and the truth for what dropped segments had
//	         beside events, such as topics, the progress of groups, and ids that are remembered
//
// A start brings the index up to date from the journal, see recover.go.
const (
	formatFile = "FORMAT"
	formatTemp = formatFile + tempSuffix
	lockFile   = "LOCK"
	dbFolder   = "db"
	tempSuffix = ".tmp"
)

// formatNumber is the format of all that the folder has. A folder of another format is refused.
const formatNumber = 1

const formatProgram = "sluice"

// format identifies a data folder.
type format struct {
	Program string    `json:"program"`
	Format  int       `json:"format"`
	StoreID string    `json:"store_id"`
	Created time.Time `json:"created"`
}

// ForeignFolderError refuses a folder with the files of something else.
type ForeignFolderError struct{ Dir string }

func (e *ForeignFolderError) Error() string {
	return fmt.Sprintf("%s is not empty and not a Sluice data folder; choose an empty or new folder with --data-dir", e.Dir)
}

// FormatError refuses a folder whose format is another one.
type FormatError struct {
	Dir    string
	Format int
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("%s has format %d, and this program reads and writes format %d; run the version of Sluice that "+
		"wrote it, or choose another --data-dir",
		e.Dir, e.Format, formatNumber)
}

// checkOwned returns an error unless the folder is a data folder or empty, so that Open leaves not
// even a lock file in the folder of another program. Files named in beside do not count. A crash
// during creation leaves at most our lock and temporary file.
func checkOwned(fsys vfs.FS, dir string, beside []string) error {
	names, err := fsys.List(dir)
	if err != nil {
		return fmt.Errorf("the data folder (--data-dir): %w", err)
	}
	if slices.Contains(names, formatFile) {
		return nil
	}
	for _, name := range names {
		if name != lockFile && name != formatTemp && !slices.Contains(beside, name) {
			return &ForeignFolderError{Dir: dir}
		}
	}
	return nil
}

// openFormat reads the folder's format and creates it in an empty folder. The caller holds the
// lock.
func openFormat(fsys vfs.FS, dir string) (format, error) {
	text, err := readWhole(fsys, dir, formatFile)
	if errors.Is(err, fs.ErrNotExist) {
		return createFormat(fsys, dir)
	}
	if err != nil {
		return format{}, err
	}
	var f format
	if err := json.Unmarshal(text, &f); err != nil {
		path := fsys.PathJoin(dir, formatFile)
		return format{}, fmt.Errorf("%s is damaged (%w); restore it from a backup or choose another --data-dir", path, err)
	}
	switch {
	case f.Program != formatProgram:
		return format{}, &ForeignFolderError{Dir: dir}
	case f.Format != formatNumber:
		return format{}, &setting.Error{Err: &FormatError{Dir: dir, Format: f.Format}}
	}
	return f, nil
}

func createFormat(fsys vfs.FS, dir string) (format, error) {
	f := format{Program: formatProgram, Format: formatNumber, StoreID: uuid.NewString(), Created: time.Now().UTC()}
	text, err := json.Marshal(f)
	if err == nil {
		err = writeWhole(fsys, dir, formatFile, append(text, '\n'))
	}
	if err == nil {
		err = syncFolder(fsys, fsys.PathDir(dir))
	}
	if err != nil {
		return format{}, fmt.Errorf("create the data folder (--data-dir): %w", err)
	}
	return f, nil
}

// ReadFile reads a file that WriteFile has written; fs.ErrNotExist if there is none.
func (l *Log) ReadFile(name string) ([]byte, error) { return readWhole(l.fsys, l.dir, name) }

// WriteFile writes a file into the folder atomically, for people: the log never reads it. The file is durable once
// WriteFile returns nil. The name must not be one of the folder's own files.
func (l *Log) WriteFile(name string, text []byte) error { return writeWhole(l.fsys, l.dir, name, text) }

// Text returns what SetText was given; nil if it was not called for that name.
func (l *Log) Text(name string) ([]byte, error) {
	text, _, err := l.get(append([]byte{kindText}, name...))
	return text, err
}

// SetText keeps a small text under a name in the log. It is durable once SetText returns nil.
func (l *Log) SetText(name string, text []byte) error {
	ctx := context.Background()
	if err := l.enter(ctx); err != nil {
		return err
	}
	defer l.leave()
	b := l.db.NewBatch()
	_ = b.Set(append([]byte{kindText}, name...), text, nil)
	return l.commitSynced(ctx, b)
}

func readWhole(fsys vfs.FS, dir, name string) ([]byte, error) {
	name = fsys.PathJoin(dir, name)
	file, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(file)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return text, nil
}

func writeWhole(fsys vfs.FS, dir, name string, text []byte) error {
	temp := fsys.PathJoin(dir, name+tempSuffix)
	file, err := fsys.Create(temp, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := fsys.Rename(temp, fsys.PathJoin(dir, name)); err != nil {
		return err
	}
	return syncFolder(fsys, dir)
}

// syncFolder makes a folder's entries durable.
func syncFolder(fsys vfs.FS, dir string) error {
	d, err := fsys.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
