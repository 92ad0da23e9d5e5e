package snapshot

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

func some(n int) Snapshot {
	return Snapshot{
		State:     bytes.Repeat([]byte{byte(n)}, n),
		Positions: map[int]uint64{0: uint64(n), 7: 1<<63 - 2},
		At:        time.UnixMilli(1723140000000),
	}
}

func same(a, b Snapshot) bool {
	return bytes.Equal(a.State, b.State) && maps.Equal(a.Positions, b.Positions) && a.At.Equal(b.At)
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func encode(t testing.TB, s Snapshot) []byte {
	t.Helper()
	b, err := Encode(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Any part of a snapshot, and any one of its bytes changed, is no snapshot.
func TestWhatIsNotWholeIsCorrupt(t *testing.T) {
	b := encode(t, some(20))
	if s, err := Decode(b); err != nil || !same(s, some(20)) {
		t.Fatalf("%+v, %v", s, err)
	}
	for n := range b {
		if _, err := Decode(b[:n]); !errors.Is(err, ErrCorrupt) {
			t.Errorf("the first %d bytes: %v", n, err)
		}
		for bit := range 8 {
			bad := bytes.Clone(b)
			bad[n] ^= 1 << bit
			if _, err := Decode(bad); !errors.Is(err, ErrCorrupt) {
				t.Errorf("byte %d, bit %d: %v", n, bit, err)
			}
		}
	}
	if _, err := Decode(append(b, 0)); !errors.Is(err, ErrCorrupt) {
		t.Errorf("with a byte more: %v", err)
	}
}

// A snapshot is read as it was written, and no content of a file breaks the reader.
func FuzzDecode(f *testing.F) {
	f.Add(encode(f, Snapshot{}))
	f.Add(encode(f, some(20)))
	f.Add(encode(f, some(20))[:60])
	f.Add([]byte(magic + "\xff\xff\xff\xff" + strings.Repeat("x", 40)))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, b := range [][]byte{b, sealed(b)} {
			s, err := Decode(b)
			if err != nil {
				if !errors.Is(err, ErrCorrupt) {
					t.Fatal(err)
				}
				continue
			}
			if again, err := Decode(encode(t, s)); err != nil || !same(s, again) {
				t.Fatalf("%+v became %+v, %v", s, again, err)
			}
		}
	})
}

// sealed is b with a checksum that matches, so that the rest is looked at, too.
func sealed(b []byte) []byte {
	b = append([]byte(magic), b...)
	sum := sha256.Sum256(b)
	return append(b, sum[:]...)
}

func TestFile(t *testing.T) {
	ctx := t.Context()
	f := &File{Dir: filepath.Join(t.TempDir(), "made", "here"), Name: "totals", Logger: quiet()}
	if _, err := f.Load(ctx); !errors.Is(err, ErrNone) {
		t.Fatalf("where nothing is: %v", err)
	}
	for n := range 5 {
		if err := f.Save(ctx, some(n)); err != nil {
			t.Fatal(err)
		}
		if s, err := f.Load(ctx); err != nil || !same(s, some(n)) {
			t.Fatalf("%d: %+v, %v", n, s, err)
		}
	}
	other := &File{Dir: f.Dir, Name: "totals.of", Keep: 1} // is another consumer's
	if err := errors.Join(other.Save(ctx, some(9)), other.Save(ctx, some(9))); err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob(filepath.Join(f.Dir, "*"))
	if err != nil || len(names) != 4 {
		t.Fatalf("%q, %v", names, err)
	}
	for n, spoil := range []func(name string) error{
		func(name string) error { return os.Truncate(name, 30) },
		func(name string) error { return os.WriteFile(name, nil, 0o600) },
		func(name string) error { return os.WriteFile(name, []byte("something else"), 0o600) },
	} {
		if err := spoil(f.path(uint64(5 - n))); err != nil {
			t.Fatal(err)
		}
		s, err := f.Load(ctx)
		if n < 2 && (err != nil || !same(s, some(3-n))) {
			t.Errorf("after %d are broken: %+v, %v", n+1, s, err)
		}
		if n == 2 && (!errors.Is(err, ErrCorrupt) || errors.Is(err, ErrNone) || !strings.Contains(err.Error(), f.path(5))) {
			t.Errorf("after all are broken: %v", err)
		}
	}
	if err := f.Save(ctx, some(8)); err != nil {
		t.Fatal(err)
	}
	if s, err := f.Load(ctx); err != nil || !same(s, some(8)) {
		t.Errorf("saved behind broken ones: %+v, %v", s, err)
	}
	for _, name := range []string{"", "a/b", "..", ".hidden"} {
		if err := (&File{Dir: f.Dir, Name: name}).Save(ctx, some(1)); err == nil {
			t.Errorf("%q is the name of a file", name)
		}
	}
}

// savesVariable has the test's own program save snapshots into that folder until it is killed.
const savesVariable = "SNAPSHOT_TEST_SAVES"

func TestMain(m *testing.M) {
	if dir := os.Getenv(savesVariable); dir != "" {
		f := &File{Dir: dir, Name: "totals"}
		for n := 1; ; n++ {
			if err := f.Save(context.Background(), some(n)); err != nil {
				fmt.Println(err)
				os.Exit(1)
			}
			fmt.Println(n)
		}
	}
	os.Exit(m.Run())
}

// A process that is killed while it saves has the snapshot that it saved last, or the one that it
// was about to save.
func TestKilledWhileItSaves(t *testing.T) {
	for kill := range 5 {
		dir := t.TempDir()
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), savesVariable+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines, said := bufio.NewScanner(out), 0
		for lines.Scan() {
			n, err := strconv.Atoi(lines.Text())
			if err != nil {
				t.Fatal(lines.Text())
			}
			if said = n; n == 5+7*kill {
				_ = cmd.Process.Kill()
			}
		}
		_ = cmd.Wait() // it was killed
		s, err := (&File{Dir: dir, Name: "totals", Logger: quiet()}).Load(t.Context())
		if n := len(s.State); err != nil || n < said || n > said+1 || !same(s, some(n)) {
			t.Errorf("after %d: %d bytes, %v", said, n, err)
		}
	}
}
