package boltstore_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/sluice-bus/sluice/controlplane/internal/store"
	"github.com/sluice-bus/sluice/controlplane/internal/store/boltstore"
	"github.com/sluice-bus/sluice/controlplane/internal/store/storetest"
	"github.com/sluice-bus/sluice/test/require"
)

func TestSuite(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Place {
		dir := filepath.Join(t.TempDir(), "made", "here")
		return storetest.Place{Handles: 1, Open: func(t *testing.T) store.Backend { return open(t, dir) }}
	})
}

func open(t *testing.T, dir string) *boltstore.Store {
	t.Helper()
	s, err := boltstore.Open(dir)
	require.NoError(t, err)
	return s
}

// appenderDir is set for a process that is to append until it is killed.
const appenderDir = "SLUICE_TEST_BOLTSTORE_DIR"

// appendUntilKilled appends behind what is there, and prints every revision once it is
// acknowledged.
func appendUntilKilled(dir string) {
	fail := func(err error) {
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	s, err := boltstore.Open(dir)
	fail(err)
	fmt.Println("open")
	all, err := storetest.All(context.Background(), s, 0)
	fail(err)
	for r := int64(len(all)) + 1; ; r++ {
		fail(s.Append(context.Background(), storetest.Commit(r)))
		fmt.Println(r)
	}
}

// A process is killed while it appends; what it has acknowledged is there, and all that is there is
// whole.
func TestKill(t *testing.T) {
	dir := t.TempDir()
	stored := int64(0)
	for round := range 6 {
		// The first ones die while they make the file, or soon after.
		acked := killAfter(t, dir, round*7)
		s := open(t, dir)
		all, err := storetest.All(t.Context(), s, 0)
		require.NoError(t, err)
		if n := int64(len(all)); n < max(acked, stored) {
			t.Fatalf("round %d: %d commits are there, and %d were acknowledged", round, n, max(acked, stored))
		}
		stored = int64(len(all))
		for i, c := range all {
			if !reflect.DeepEqual(c, storetest.Commit(int64(i+1))) {
				t.Fatalf("round %d: place %d has %+v", round, i, c)
			}
		}
		require.NoError(t, s.Close())
	}
	if stored == 0 {
		t.Error("no process came to append")
	}
}

// killAfter kills an appender once it has printed some lines, and returns the highest revision that
// it acknowledged.
func killAfter(t *testing.T, dir string, lines int) (acked int64) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), appenderDir+"="+dir)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	guard := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer guard.Stop()
	kill := func() {
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
	}
	if lines == 0 {
		kill()
	}
	seen := 0
	for in := bufio.NewScanner(out); in.Scan(); {
		if seen++; seen == lines {
			kill()
		}
		if in.Text() == "open" {
			continue
		}
		if acked, err = strconv.ParseInt(in.Text(), 10, 64); err != nil {
			t.Fatalf("the appender says: %s", in.Text())
		}
	}
	if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatalf("the appender ended with %v", err)
	}
	return acked
}

func TestOpenTwice(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	began := time.Now()
	_, err := boltstore.Open(dir)
	if err == nil || !strings.Contains(err.Error(), "another process has it open") || time.Since(began) > 30*time.Second {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
	require.NoError(t, s.Close())
	require.NoError(t, open(t, dir).Close())
}

func TestOtherFiles(t *testing.T) {
	set := func(format string) func(*bbolt.Tx) error {
		return func(tx *bbolt.Tx) error {
			meta, err := tx.CreateBucket([]byte("meta"))
			if err != nil {
				return err
			}
			return meta.Put([]byte("format"), []byte(format))
		}
	}
	for want, prepare := range map[string]func(*bbolt.Tx) error{
		"its format is 0, and this program reads and writes format 1: run the version": set("0"),
		"its format is 2, and this program reads and writes format 1: run the version": set("2"),
		`its format is "x"`:                set("x"),
		"the bucket of commits is missing": set("1"),
		"a bbolt file of another program":  func(*bbolt.Tx) error { return nil },
	} {
		dir := t.TempDir()
		db, err := bbolt.Open(filepath.Join(dir, boltstore.FileName), 0o600, nil)
		require.NoError(t, err)
		require.NoError(t, errors.Join(db.Update(prepare), db.Close()))
		for range 2 { // the file is let go of, too
			if _, err := boltstore.Open(dir); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %s", err, want)
			}
		}
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, boltstore.FileName), []byte("text"), 0o600))
	if _, err := boltstore.Open(dir); err == nil {
		t.Error("a file of text was opened")
	}
}

// A file that a kill left unfinished is not opened as a store, and is removed with the next one.
func TestUnfinishedFile(t *testing.T) {
	dir := t.TempDir()
	unfinished := filepath.Join(dir, boltstore.FileName+".new-123")
	require.NoError(t, os.WriteFile(unfinished, []byte("half"), 0o600))
	require.NoError(t, open(t, dir).Close())
	if _, err := os.Stat(unfinished); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the unfinished file: %v", err)
	}
}

func TestUnwritableFolder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	if _, err := boltstore.Open(filepath.Join(file, "below")); err == nil || errors.Is(err, store.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
}
