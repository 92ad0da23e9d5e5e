// Package grpclogs gives what gRPC's library logs to slog: its own logger writes lines of another form to standard error.
package grpclogs

import (
	"bytes"
	"io"
	"log/slog"

	"google.golang.org/grpc/grpclog"
)

// Redirect makes errors of gRPC lines of slog's default logger. Its other lines are about connections, which the programs
// log themselves. It has to be called before gRPC is used.
func Redirect() {
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, errorLines{}))
}

// errorLines takes one line of the library at a time: its level, date and time, and the message.
type errorLines struct{}

func (errorLines) Write(line []byte) (int, error) {
	message := line
	if fields := bytes.SplitN(line, []byte(" "), 4); len(fields) == 4 {
		message = fields[3]
	}
	slog.Error("gRPC failed", "error", string(bytes.TrimSpace(message)))
	return len(line), nil
}
