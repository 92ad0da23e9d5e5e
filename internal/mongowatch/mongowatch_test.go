package mongowatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.uber.org/goleak"

	"github.com/sluice-bus/sluice/test/require"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func started(t *testing.T, number int64, connection, name string, command bson.D) *event.CommandStartedEvent {
	t.Helper()
	raw, err := bson.Marshal(command)
	require.NoError(t, err)
	return &event.CommandStartedEvent{Command: raw, DatabaseName: "db", CommandName: name, RequestID: number, ConnectionID: connection}
}

func finished(number int64, connection string) event.CommandFinishedEvent {
	return event.CommandFinishedEvent{RequestID: number, ConnectionID: connection}
}

func TestCommands(t *testing.T) {
	var told []string
	m := Monitor(func(_ context.Context, c Command) func(string) {
		told = append(told, fmt.Sprintf("%+v", c))
		if c.Name == "ping" {
			return nil
		}
		return func(failure string) { told = append(told, c.Name+" is over: "+failure) }
	})
	ctx := t.Context()
	m.Started(ctx, started(t, 1, "db1:27017[-3]", "insert", bson.D{{Key: "insert", Value: "events"}}))
	m.Started(ctx, started(t, 1, "db2:27017[-1]", "getMore", bson.D{{Key: "getMore", Value: int64(7)}, {Key: "collection", Value: "signals"}}))
	m.Started(ctx, started(t, 2, "/run/db.sock[-4]", "ping", bson.D{{Key: "ping", Value: 1}}))
	m.Started(ctx, started(t, 3, "[::1]:9[-5]", "saslStart", bson.D{})) // of which the driver tells nothing
	m.Succeeded(ctx, &event.CommandSucceededEvent{CommandFinishedEvent: finished(2, "/run/db.sock[-4]")})
	m.Failed(ctx, &event.CommandFailedEvent{CommandFinishedEvent: finished(1, "db1:27017[-3]"), Failure: errors.New("E11000 dup key: secret")})
	m.Succeeded(ctx, &event.CommandSucceededEvent{CommandFinishedEvent: finished(1, "db2:27017[-1]")})
	m.Succeeded(ctx, &event.CommandSucceededEvent{CommandFinishedEvent: finished(1, "db2:27017[-1]")}) // is not known any more
	want := []string{
		"{Name:insert Database:db Collection:events Host:db1 Port:27017}",
		"{Name:getMore Database:db Collection:signals Host:db2 Port:27017}",
		"{Name:ping Database:db Collection: Host:/run/db.sock Port:0}",
		"{Name:saslStart Database:db Collection: Host:::1 Port:9}",
		"insert is over: other",
		"getMore is over: ",
	}
	if !slices.Equal(told, want) {
		t.Errorf("told\n%q, want\n%q", told, want)
	}
}

func TestFailures(t *testing.T) {
	for want, err := range map[string]error{
		"NotWritablePrimary": mongo.CommandError{Code: 10107, Name: "NotWritablePrimary", Message: "secret"},
		"11000":              fmt.Errorf("insert: %w", mongo.CommandError{Code: 11000}),
		"canceled":           context.Canceled,
		"timeout":            context.DeadlineExceeded,
		"network":            mongo.CommandError{Labels: []string{"NetworkError"}, Name: "network"},
		"other":              errors.New("secret"),
	} {
		if got := kindOf(err); got != want {
			t.Errorf("%v is %q, want %q", err, got, want)
		}
	}
}

func TestNobodyIsTold(t *testing.T) {
	if Monitor(nil) != nil {
		t.Error("a monitor for nobody")
	}
}
