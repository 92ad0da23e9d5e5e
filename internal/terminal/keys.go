package terminal

import (
	"io"
	"os"

	"golang.org/x/term"
)

// Keys delivers each key as it is pressed, and shows none, until restore is called. Control-C is a key, too, and lines that are
// written begin with \r. Where in is no terminal there are no keys.
func Keys(in io.Reader) (keys <-chan byte, restore func(), err error) {
	file, ok := in.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return nil, func() {}, nil
	}
	before, err := term.MakeRaw(int(file.Fd()))
	if err != nil {
		return nil, nil, err
	}
	pressed, done := make(chan byte), make(chan struct{})
	go func() { // not waited for: nothing ends a read from a terminal
		key := make([]byte, 1)
		for {
			if _, err := file.Read(key); err != nil {
				return
			}
			select {
			case pressed <- key[0]:
			case <-done:
				return
			}
		}
	}()
	return pressed, func() {
		close(done)
		_ = term.Restore(int(file.Fd()), before) // a terminal that is gone has nothing to restore
	}, nil
}
