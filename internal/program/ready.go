package program

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"syscall"
)

// A Field is one name and value of the ready line.
type Field struct{ Name, Value string }

// Ready writes the line that says that the program can be used, in one write:
// {"ready":true,"listen":"…",…}, with the fields in the order they are given. Values are the
// addresses really bound. That nobody reads standard output any more is no error.
func Ready(w io.Writer, fields ...Field) error {
	line := []byte(`{"ready":true`)
	for _, field := range fields {
		line = fmt.Appendf(line, ",%s:%s", quote(field.Name), quote(field.Value))
	}
	_, err := w.Write(append(line, "}\n"...))
	if errors.Is(err, syscall.EPIPE) {
		return nil
	}
	return err
}

func quote(text string) []byte {
	quoted, err := json.Marshal(text)
	if err != nil {
		panic(err) // a string always marshals
	}
	return quoted
}
