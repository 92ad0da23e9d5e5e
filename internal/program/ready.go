package program

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"
)

// A Field is one name and value of the ready line.
type Field struct{ Name, Value string }

// startTakes is for how long after it is ready a program may still use what its start needs.
const startTakes = 5 * time.Second

// Ready says that the program can be used: in the log, and on standard output by a line in one
// write, {"ready":true,"listen":"…",…}, with the fields in the order they are given. Values are the
// addresses really bound. That nobody reads standard output any more is no error.
func (a *App) Ready(fields ...Field) error {
	line, about := []byte(`{"ready":true`), []any{"program", a.Name, "version", a.Version}
	for _, field := range fields {
		line = fmt.Appendf(line, ",%s:%s", quote(field.Name), quote(field.Value))
		about = append(about, field.Name, field.Value)
	}
	a.Logger.Info("ready", about...)
	_, err := a.Stdout.Write(append(line, "}\n"...))
	a.notifyManager()
	time.AfterFunc(startTakes, releasePages)
	if errors.Is(err, syscall.EPIPE) {
		return nil
	}
	return err
}

// notifyManager tells systemd, where that waits for it (Type=notify), that the program is ready.
func (a *App) notifyManager() {
	if a.notifySocket == "" {
		return
	}
	conn, err := net.Dial("unixgram", a.notifySocket)
	if err == nil {
		_, err = conn.Write([]byte("READY=1"))
		err = errors.Join(err, conn.Close())
	}
	if err != nil {
		a.Logger.Warn("cannot tell systemd that the program is ready", "err", err)
	}
}

func quote(text string) []byte {
	quoted, err := json.Marshal(text)
	if err != nil {
		panic(err) // a string always marshals
	}
	return quoted
}
