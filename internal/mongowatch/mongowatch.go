// Package mongowatch has what the programs' clients of MongoDB share: their options, the errors
// that they tell apart, and reports of the commands that they send, without their content, for
// spans.
package mongowatch

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync"

	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// Command is one command under way. It contains no content of applications and users, except for
// names.
type Command struct {
	Name       string
	Database   string
	Collection string // "" if the command is for none
	Host       string
	Port       int // 0 where the server is a unix socket
}

// Monitor calls sent for every command, with the context of its operation. It calls the function
// that sent returns, unless it is nil, once when the command is over, with "" or the kind of its
// failure. Both have to be quick, and may be called from several goroutines at once. Monitor
// returns nil for a nil sent.
func Monitor(sent func(context.Context, Command) (over func(failure string))) *event.CommandMonitor {
	if sent == nil {
		return nil
	}
	type request struct {
		connection string
		number     int64
	}
	var under sync.Map // request → func(failure string), no more than the driver has connections
	end := func(e event.CommandFinishedEvent, failure string) {
		if over, found := under.LoadAndDelete(request{e.ConnectionID, e.RequestID}); found {
			over.(func(string))(failure)
		}
	}
	return &event.CommandMonitor{
		Started: func(ctx context.Context, e *event.CommandStartedEvent) {
			c := Command{Name: e.CommandName, Database: e.DatabaseName, Collection: collectionOf(e)}
			c.Host, c.Port = serverOf(e.ConnectionID)
			if over := sent(ctx, c); over != nil {
				under.Store(request{e.ConnectionID, e.RequestID}, over)
			}
		},
		Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) { end(e.CommandFinishedEvent, "") },
		Failed:    func(_ context.Context, e *event.CommandFailedEvent) { end(e.CommandFinishedEvent, kindOf(e.Failure)) },
	}
}

// collectionOf is the value of the command's own element, if that is the name of a collection;
// getMore has it in another element.
func collectionOf(e *event.CommandStartedEvent) string {
	field := e.CommandName
	if field == "getMore" {
		field = "collection"
	}
	name, _ := e.Command.Lookup(field).StringValueOK()
	return name
}

// serverOf reads the address out of a connection's id, which is the address and a number in square
// brackets.
func serverOf(connection string) (host string, port int) {
	address, _, _ := strings.Cut(connection, "[-")
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return address, 0
	}
	port, _ = strconv.Atoi(text)
	return host, port
}

// kindOf returns the kind of a failure. It leaves the error's text out, which may have values of
// documents.
func kindOf(err error) string {
	var server mongo.CommandError
	switch {
	case errors.As(err, &server) && server.Name != "":
		return server.Name
	case errors.As(err, &server):
		return strconv.Itoa(int(server.Code))
	case errors.Is(err, context.Canceled):
		return "canceled"
	case mongo.IsTimeout(err):
		return "timeout"
	case mongo.IsNetworkError(err):
		return "network"
	}
	return "other"
}
