package pebblelog

import (
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/google/uuid"

	"github.com/sluice-bus/sluice/test/require"
)

var quiet = slog.New(slog.DiscardHandler)

// refused checks that the folder is refused with a sentence that has all of the words.
func refused(t *testing.T, dir string, target any, words ...string) {
	t.Helper()
	l, err := Open(Options{Dir: dir, NodeID: "second", Logger: quiet})
	if err == nil {
		l.Close()
		t.Fatal("the folder was not refused")
	}
	if !errors.As(err, target) {
		t.Errorf("%T; want %T", err, target)
	}
	for _, word := range append(words, dir) {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q does not say %q", err, word)
		}
	}
}

func TestStoreIDIsTheFolders(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "folder")
	l := mustOpen(t, Options{Dir: dir})
	id := l.StoreID()
	if _, err := uuid.Parse(id); err != nil {
		t.Errorf("store id %q: %v", id, err)
	}
	l.Close()
	l = mustOpen(t, Options{Dir: dir})
	defer l.Close()
	if l.StoreID() != id {
		t.Errorf("store id %q after a restart; it was %q", l.StoreID(), id)
	}
}

func TestForeignFolderIsRefusedAndLeftAlone(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "thesis.tex"), nil, 0o644))
	refused(t, dir, new(*ForeignFolderError), "empty", "--data-dir")
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("the folder now holds %v", entries)
	}
}

func TestFormatOfAnotherProgramIsRefused(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir, formatFile, `{"program":"other","format":1}`)
	refused(t, dir, new(*ForeignFolderError), "--data-dir")
}

func TestAnotherFormatIsRefusedAndLeftAlone(t *testing.T) {
	for _, number := range []string{strconv.Itoa(formatNumber - 1), strconv.Itoa(formatNumber + 1)} {
		dir := t.TempDir()
		text := `{"program":"sluice","format":` + number + `,"of":"another version"}`
		writeFile(t, dir, formatFile, text)
		refused(t, dir, new(*FormatError), "format "+number, "format "+strconv.Itoa(formatNumber), "run the version", "--data-dir")
		if now, err := os.ReadFile(filepath.Join(dir, formatFile)); err != nil || string(now) != text {
			t.Errorf("%s now has %q, %v", formatFile, now, err)
		}
		if entries, _ := os.ReadDir(dir); len(entries) > 2 { // FORMAT and LOCK
			t.Errorf("the folder now holds %v", entries)
		}
	}
}

func TestDamagedFormatIsRefused(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir, formatFile, `{"program":`)
	var damaged error
	refused(t, dir, &damaged, "damaged", "--data-dir")
}

func writeFile(t *testing.T, dir, name, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
}

func TestSecondOpenerIsToldWhoHasTheFolder(t *testing.T) {
	dir := t.TempDir()
	l := mustOpen(t, Options{Dir: dir, NodeID: "first"})
	refused(t, dir, new(*LockedError), `"first"`, "since", "stop it")
	l.Close()
	mustOpen(t, Options{Dir: dir}).Close()
}

// TestKilledOwnerFreesTheFolder runs this test once more as the owner that dies without closing
// anything.
func TestKilledOwnerFreesTheFolder(t *testing.T) {
	const env = "PEBBLELOG_TEST_DIR"
	if dir := os.Getenv(env); dir != "" {
		mustOpen(t, Options{Dir: dir, NodeID: "child"})
		os.Exit(0)
	}
	dir := t.TempDir()
	child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	child.Env = append(os.Environ(), env+"="+dir)
	if out, err := child.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	mustOpen(t, Options{Dir: dir}).Close()
}

// TestCreationSurvivesACrashAnywhere fails each operation of the creation in turn, cuts the power
// and starts again.
func TestCreationSurvivesACrashAnywhere(t *testing.T) {
	create := func(fsys vfs.FS) error {
		if err := claimFolder(fsys, "data", nil); err != nil {
			return err
		}
		_, err := openFormat(fsys, "data")
		return err
	}
	for op := int32(0); ; op++ {
		disk := vfs.NewCrashableMem()
		err := create(errorfs.Wrap(disk, errorfs.OnIndex(op)))
		for _, after := range []vfs.FS{disk, disk.CrashClone(vfs.CrashCloneCfg{})} {
			if err := create(after); err != nil {
				t.Errorf("after a failure of operation %d: %v", op, err)
			}
		}
		if err == nil {
			if op < 5 {
				t.Errorf("the creation took %d operations: is anything injected?", op)
			}
			return
		}
	}
}
