package mongowatch_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-bus/sluice/internal/clock"
	"github.com/sluice-bus/sluice/internal/mongowatch"
	"github.com/sluice-bus/sluice/test/lockedbuffer"
	"github.com/sluice-bus/sluice/test/require"
)

// Nothing is logged past slog, whatever the driver's variables say.
func TestTheDriverLogsToSlog(t *testing.T) {
	file := filepath.Join(t.TempDir(), "driver.log")
	t.Setenv("MONGODB_LOG_ALL", "debug")
	t.Setenv("MONGODB_LOG_PATH", file)
	var lines lockedbuffer.Buffer
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.NewTextHandler(&lines, &slog.HandlerOptions{Level: slog.LevelDebug})))
	client, err := mongo.Connect(mongowatch.ClientOptions("mongodb://127.0.0.1:1", "test", time.Millisecond, nil))
	require.NoError(t, err)
	if client.Ping(t.Context(), nil) == nil {
		t.Error("a server answers at port 1")
	}
	require.NoError(t, mongowatch.Disconnect(client, clock.Clock{}, time.Second))
	if got := lines.String(); !strings.Contains(got, `level=DEBUG msg="MongoDB's driver: Starting topology monitoring"`) {
		t.Errorf("logged %q", got)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("the driver has a file of its own")
	}
}
