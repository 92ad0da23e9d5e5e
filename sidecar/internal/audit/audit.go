// Package audit writes the access log. Each line names an identity, an address, a topic and an
// action, such as a publish, a subscription, a replay or a deletion.
package audit

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/internal/logging"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
)

// Actions that are not HTTP requests, whose action is the method and the route.
const (
	Publish     = "publish"
	Subscribe   = "subscribe"
	Unsubscribe = "unsubscribe"
)

// Log is an access log. The line of a publish is written before its answer, that of another HTTP
// request when its answer has ended. A nil *Log is off. Its methods are safe for concurrent use.
type Log struct {
	topics []string
	to     *slog.Logger
	file   *os.File // nil: there is none
}

// Open makes an access log of topics, each a name or a prefix followed by *. Without topics it is
// off. It appends the lines to a file, as JSON, or without a path gives them to the logger.
func Open(topics []string, path string, logger *slog.Logger) (*Log, error) {
	if len(topics) == 0 {
		return nil, nil
	}
	l := &Log{topics: topics, to: logger}
	if path == "" {
		return l, nil
	}
	var err error
	if l.file, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
		return nil, err
	}
	l.to = slog.New(slog.NewJSONHandler(l.file, nil))
	return l, nil
}

// Close closes the file.
func (l *Log) Close() error {
	if l == nil || l.file == nil {
		return nil
	}
	return l.file.Close()
}

// CheckTopics returns an error that names a text that is neither a topic nor a prefix followed by
// *.
func CheckTopics(topics []string) error {
	for _, topic := range topics {
		literal := strings.TrimSuffix(topic, "*")
		if literal == "" && topic == "*" {
			continue
		}
		if bad := codec.CheckReadTopic(literal); bad != nil {
			return fmt.Errorf("%q must be a topic, or a prefix followed by *: %s", topic, bad.Msg)
		}
	}
	return nil
}

// Note writes a line, unless the topic cannot be one. err is why the action was refused; nil: it was not. Note leaves out
// attributes that are "".
func (l *Log) Note(action, topic string, who access.Identity, from string, err error, more ...slog.Attr) {
	if l == nil || !access.Covers(l.topics, topic) || codec.CheckReadTopic(topic) != nil {
		return
	}
	attrs := []slog.Attr{slog.String("action", action), slog.String("topic", topic), slog.String("identity", who.Name),
		slog.String("from", from)}
	if who.Forwarded {
		attrs = append(attrs, slog.String("role", string(who.Role)))
	}
	for _, a := range more {
		if a.Value.String() != "" {
			attrs = append(attrs, a)
		}
	}
	if err != nil {
		attrs = append(attrs, slog.String("code", string(wire.AsError(err).Code)))
	}
	l.to.LogAttrs(context.Background(), slog.LevelInfo, logging.Access, attrs...)
}

// Member returns what writes lines about one member of a group, for an endpoint at an address. A nil *Log has none.
func (l *Log) Member(identity, from, topic, group string) func(action string, err error) {
	if l == nil {
		return nil
	}
	return func(action string, err error) {
		l.Note(action, topic, access.Identity{Name: identity}, from, err, slog.String("group", group))
	}
}

// Source returns what writes lines about the publishes of an outbox or a capture, which nobody asked for. A nil *Log has none.
func (l *Log) Source(from string) func(items []wire.PublishItem, results []wire.ResultItem, err error) {
	if l == nil {
		return nil
	}
	return func(items []wire.PublishItem, results []wire.ResultItem, err error) {
		l.Published(items, results, access.Identity{}, from, err)
	}
}

// Published writes one line for each topic of a batch. err is why the whole batch was refused.
func (l *Log) Published(items []wire.PublishItem, results []wire.ResultItem, who access.Identity, from string, err error) {
	if l == nil {
		return
	}
	type count struct {
		stored, refused int
		id              string // of the stored event
		err             error
	}
	topics := make(map[string]*count)
	var order []string
	for i := range items {
		topic := items[i].Event.Topic
		of := topics[topic]
		if of == nil {
			of = &count{err: err}
			topics[topic], order = of, append(order, topic)
		}
		switch {
		case err != nil:
			of.refused++
		case results[i].Err != nil:
			of.refused++
			of.err = results[i].Err
		default:
			of.stored++
			of.id = results[i].Receipt.ID
		}
	}
	for _, topic := range order {
		of := topics[topic]
		if of.stored != 1 {
			of.id = ""
		}
		l.Note(Publish, topic, who, from, of.err, slog.Int("events", of.stored), slog.Int("refused", of.refused), slog.String("id", of.id))
	}
}

// request is what a handler says about its request.
type request struct {
	noted bool // it writes the lines itself
}

type requestKey struct{}

// WritesLines says that the handler of a request writes its lines itself, whatever happens from now on.
func WritesLines(ctx context.Context) {
	if r, ok := ctx.Value(requestKey{}).(*request); ok {
		r.noted = true
	}
}

// HTTP writes a line for each request about a topic once it is answered, unless its handler has said that it writes them. The topic
// is the path value, the query parameter "topic", or what topicOf says, which may be nil. A request on the routes that publish is a
// publish, also where it was refused before it came to one.
func (l *Log) HTTP(
	who func(context.Context) access.Identity, topicOf func(*http.Request) string, next http.Handler, publish ...string,
) http.Handler {
	if l == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		answer := &httpapi.Recorder{ResponseWriter: w}
		var said request
		r = r.WithContext(context.WithValue(r.Context(), requestKey{}, &said))
		defer func() {
			topic := cmp.Or(r.PathValue("topic"), r.URL.Query().Get("topic"))
			if topic == "" && topicOf != nil {
				topic = topicOf(r)
			}
			if topic == "" || r.Pattern == "" || said.noted {
				return
			}
			if slices.Contains(publish, r.Pattern) {
				l.Note(Publish, topic, who(r.Context()), r.RemoteAddr, nil, slog.Int("events", 0), slog.Int("refused", 1),
					slog.Int("status", answer.Status()))
				return
			}
			l.Note(r.Pattern, topic, who(r.Context()), r.RemoteAddr, nil, slog.String("group", groupOf(r)), slog.Int("status", answer.Status()),
				slog.Int64("bytes", answer.Bytes), slog.Duration("took", time.Since(began)))
		}()
		next.ServeHTTP(answer, r)
	})
}

// groupOf is the group that a request names.
func groupOf(r *http.Request) string {
	if name := r.PathValue("group"); name != "" {
		return name
	}
	return r.URL.Query().Get("group")
}
