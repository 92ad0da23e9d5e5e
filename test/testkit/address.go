package testkit

import (
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"testing"
)

// Ports that FreeAddress gives: below those that the system gives to whoever asks for any. Each test
// process has a window of them.
const (
	firstPort     = 10_000
	portWindows   = 40
	portsInWindow = 500
)

var portsGiven atomic.Uint32

// FreeAddress is an address on which nothing listens, and that stays free for the program of a test: no
// other test gets it, nor does a client that connects from any port.
func FreeAddress(t testing.TB) string {
	t.Helper()
	first := firstPort + os.Getpid()%portWindows*portsInWindow
	for range portsInWindow {
		address := fmt.Sprintf("127.0.0.1:%d", first+int(portsGiven.Add(1)%portsInWindow))
		if l, err := net.Listen("tcp", address); err == nil {
			l.Close()
			return address
		}
	}
	t.Fatal("there is no free port")
	return ""
}
