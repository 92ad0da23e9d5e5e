package mongowatch

import (
	"log/slog"

	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// driverLog gives slog's default logger what the driver logs: without it, the driver writes lines of another form to standard
// error, or to a file, where variables of the environment such as MONGODB_LOG_ALL ask for them. They may be meant for another
// program, so the lines have level debug: what matters of a store the programs log themselves.
type driverLog struct{}

var _ options.LogSink = driverLog{}

// Info takes every line that is no error.
func (driverLog) Info(_ int, message string, attrs ...any) {
	slog.Debug("MongoDB's driver: "+message, attrs...)
}

func (driverLog) Error(err error, message string, attrs ...any) {
	slog.Error("MongoDB's driver: "+message, append(attrs, "error", err)...)
}
