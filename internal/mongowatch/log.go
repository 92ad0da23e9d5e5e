package mongowatch

import (
	"context"
	"log/slog"

	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// driverLog gives slog's default logger what the driver logs: without it, the driver writes lines of another form to standard
// error, or to a file, where variables of the environment such as MONGODB_LOG_ALL ask for them.
type driverLog struct{}

var _ options.LogSink = driverLog{}

// Info takes a line of level 0, information, or 1, which the driver calls debug.
func (driverLog) Info(level int, message string, attrs ...any) {
	at := slog.LevelInfo
	if level > 0 {
		at = slog.LevelDebug
	}
	slog.Log(context.Background(), at, "MongoDB's driver: "+message, attrs...)
}

func (driverLog) Error(err error, message string, attrs ...any) {
	slog.Error("MongoDB's driver: "+message, append(attrs, "error", err)...)
}
