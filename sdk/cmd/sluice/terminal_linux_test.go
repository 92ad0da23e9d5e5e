package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/term"

	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/test/sluicetest"
)

// openTerminal makes a terminal, and the side from which it is looked at.
func openTerminal(t *testing.T) (screen, tty *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("this system has no terminals to test with: %v", err)
	}
	var number, locked int32
	for _, call := range []struct {
		request uintptr
		value   *int32
	}{{syscall.TIOCSPTLCK, &locked}, {syscall.TIOCGPTN, &number}} {
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, screen.Fd(), call.request, uintptr(unsafe.Pointer(call.value))); errno != 0 {
			t.Fatal(errno)
		}
	}
	if tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	return screen, tty
}

// onTerminal runs a command on a terminal, and returns what it wrote there.
func onTerminal(t *testing.T, sidecar *sluicetest.Sidecar, args ...string) string {
	t.Helper()
	screen, tty := openTerminal(t)
	read := make(chan string, 1)
	go func() {
		var shown bytes.Buffer
		_, _ = io.Copy(&shown, screen) // it ends with an error once the other side is closed
		read <- shown.String()
	}()
	p := process(sidecar, strings.NewReader(""), args...)
	p.Stdout, p.Stderr = tty, tty
	program.Run(spec(), p)
	if err := tty.Close(); err != nil {
		t.Fatal(err)
	}
	shown := <-read
	if err := screen.Close(); err != nil {
		t.Fatal(err)
	}
	return shown
}

// Text of other publishers or of a server cannot control the terminal. It comes out of a pipe
// unchanged.
func TestTerminalIsShielded(t *testing.T) {
	const evil = "\u202e\u009b2J\u200b\x7f"
	sidecar := start(t, sluicetest.Options{})
	run(t, sidecar, "", "pub", "t", `{"a":"`+evil+`"}`, "--key", evil).wantOK(t)
	for _, args := range [][]string{
		{"sub", "t", "--from", "earliest", "--max", "1"},
		{"sub", "t", "--from", "earliest", "--max", "1", "-o", "json"},
		{"replay", "t"},
		{"pub", evil, "1"},
	} {
		shown := onTerminal(t, sidecar, args...)
		for _, c := range []string{"\u202e", "\u009b", "\u200b", "\x7f", "\x1b"} {
			if strings.Contains(shown, c) {
				t.Errorf("%q lets %q through: %q", args, c, shown)
			}
		}
		if !strings.Contains(shown, `\u202e`) {
			t.Errorf("%q does not show what is there: %q", args, shown)
		}
	}
	if got := run(t, sidecar, "", "sub", "t", "--from", "earliest", "--max", "1").wantOK(t); !strings.Contains(got.stdout, evil) {
		t.Errorf("through a pipe: %q", got.stdout)
	}
}

// TestTop: keys sort and quit, and the terminal is then as it was.
func TestTop(t *testing.T) {
	plane := troubled(t)
	screen, tty := openTerminal(t)
	before, err := term.GetState(int(tty.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	shown := bufio.NewReader(screen)
	until := func(text string) {
		t.Helper()
		var seen []byte
		for !bytes.Contains(seen, []byte(text)) {
			b, err := shown.ReadByte()
			if err != nil {
				t.Fatalf("%v, and %q was not shown: %q", err, text, seen)
			}
			seen = append(seen, b)
		}
	}
	ended := make(chan int, 1)
	go func() {
		ended <- program.Run(spec(), program.Process{Args: []string{"top", "--control-plane-url", plane.URL},
			LookupEnv: func(string) (string, bool) { return "", false }, Stdin: tty, Stdout: tty, Stderr: tty})
	}()
	until("\x1b[?1049h")
	until("topics by published")
	until("orders  149")
	for key, by := range map[string]string{"r": "refused", "n": "name", "p": "published"} {
		if _, err := screen.WriteString(key); err != nil {
			t.Fatal(err)
		}
		until("topics by " + by)
	}
	if _, err := screen.WriteString("q"); err != nil {
		t.Fatal(err)
	}
	until("\x1b[?25h\x1b[?1049l")
	if status := <-ended; status != 0 {
		t.Errorf("status %d", status)
	}
	if after, err := term.GetState(int(tty.Fd())); err != nil || !reflect.DeepEqual(after, before) {
		t.Errorf("the terminal is not as it was: %v, %v, %v", after, before, err)
	}
	tty.Close()
	screen.Close()
}
