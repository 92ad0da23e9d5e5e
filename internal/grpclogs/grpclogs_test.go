package grpclogs

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"google.golang.org/grpc/grpclog"
)

func TestRedirect(t *testing.T) {
	var lines bytes.Buffer
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.NewTextHandler(&lines, nil)))
	Redirect()
	grpclog.Error("the transport is closing")
	grpclog.Info("a channel is made")
	if got := lines.String(); !strings.Contains(got, `level=ERROR msg="gRPC failed" error="the transport is closing"`) ||
		strings.Contains(got, "a channel") {
		t.Errorf("logged %q", got)
	}
}
