package sluice_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/option"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
)

const (
	casePatience = 30 * time.Second
	caseQuiet    = 30 * time.Millisecond
)

type object = map[string]any

// TestCases runs the cases that all SDKs run; testdata/cases/README.md says what the steps mean.
func TestCases(t *testing.T) {
	for _, file := range []string{"publish", "consume"} {
		text, err := os.ReadFile(filepath.Join("testdata", "cases", file+".json"))
		if err != nil {
			t.Fatal(err)
		}
		var cases []struct {
			Name    string
			Options struct{ HeartbeatMS int }
			Steps   []map[string]json.RawMessage
		}
		if err := json.Unmarshal(text, &cases); err != nil {
			t.Fatal(err)
		}
		for _, c := range cases {
			t.Run(file+": "+c.Name, func(t *testing.T) {
				t.Parallel()
				opts := []sluice.Option{
					sluice.WithBackoff(time.Millisecond, 10*time.Millisecond), sluice.WithLogger(slog.New(slog.DiscardHandler)),
				}
				if ms := c.Options.HeartbeatMS; ms > 0 {
					opts = append(opts, sluice.WithHeartbeat(time.Duration(ms)*time.Millisecond))
				}
				r := newCaseRun(t, opts)
				for i, step := range c.Steps {
					for verb, argument := range step {
						if err := r.step(verb, argument); err != nil {
							t.Fatalf("step %d, %s %s: %v", i+1, verb, argument, err)
						}
					}
				}
				if err := r.nothingIsLeft(); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

// caseRun is a case on its way: a client and a server that answers only PING and AUTH by itself.
type caseRun struct {
	t       *testing.T
	ctx     context.Context
	client  *sluice.Client
	frames  chan caseFrame
	calls   chan object
	last    caseFrame            // the one that came last
	of      map[string]caseFrame // the last SUBSCRIBE and PUBLISH
	names   map[string]any       // what texts with $ stand for
	results map[string]chan sluice.Result
	sub     chan *sluice.Subscription

	mu       sync.Mutex
	conns    map[*websocket.Conn]bool // whether it is mute
	handlers map[string]*caseHandler
}

type caseFrame struct {
	conn *websocket.Conn
	body object
}

// caseHandler is a handler that waits for the case to say how it ends.
type caseHandler struct {
	ctx context.Context
	m   *sluice.Message
	end chan error
}

func newCaseRun(t *testing.T, opts []sluice.Option) *caseRun {
	ctx, cancel := context.WithTimeout(t.Context(), casePatience)
	r := &caseRun{
		t: t, ctx: ctx, frames: make(chan caseFrame, 100), calls: make(chan object, 100), of: map[string]caseFrame{}, names: map[string]any{},
		results: map[string]chan sluice.Result{}, sub: make(chan *sluice.Subscription, 1),
		conns: map[*websocket.Conn]bool{}, handlers: map[string]*caseHandler{},
	}
	server := httptest.NewServer(http.HandlerFunc(r.serve))
	client, err := sluice.Dial(ctx, server.URL, opts...)
	if err != nil {
		t.Fatal(err)
	}
	r.client = client
	t.Cleanup(func() {
		cancel()
		r.mu.Lock()
		for conn := range r.conns {
			conn.CloseNow()
		}
		for _, h := range r.handlers {
			select {
			case h.end <- nil:
			default:
			}
		}
		r.mu.Unlock()
		client.Close()
		server.Close()
	})
	return r
}

func (r *caseRun) serve(w http.ResponseWriter, req *http.Request) {
	conn, err := websocket.Accept(w, req, nil)
	if err != nil {
		return
	}
	defer conn.CloseNow()
	r.mu.Lock()
	r.conns[conn] = false
	r.mu.Unlock()
	for {
		_, text, err := conn.Read(r.ctx)
		if err != nil {
			return
		}
		body := decodeObject(text)
		if op := body["op"]; op != "PING" && op != "AUTH" {
			r.frames <- caseFrame{conn, normalFrame(body)}
			continue
		}
		r.mu.Lock()
		mute := r.conns[conn]
		r.mu.Unlock()
		if !mute {
			_ = r.write(conn, object{"op": "OK", "corr": body["corr"]}) // the connection may have ended
		}
	}
}

func (r *caseRun) write(conn *websocket.Conn, frame object) error {
	text, err := json.Marshal(frame)
	if err != nil {
		return err
	}
	return conn.Write(r.ctx, websocket.MessageText, text)
}

func decodeObject(text []byte) (o object) {
	if err := json.Unmarshal(text, &o); err != nil {
		return object{"not JSON": string(text)}
	}
	return o
}

// normalFrame has the ids of a frame as a list, and the events of a publish with the members of
// opts beside topic and payload.
func normalFrame(f object) object {
	if id, ok := f["id"]; ok && f["op"] != "PUBLISH" {
		others, _ := f["ids"].([]any) // of acks that joined the first one's frame
		f["ids"] = append([]any{id}, others...)
	}
	if f["op"] != "PUBLISH" {
		return f
	}
	given, batch := f["events"].([]any)
	if !batch {
		given = []any{f}
	}
	events := make([]any, len(given))
	for i, e := range given {
		event := object{"topic": f["topic"], "payload": e.(object)["payload"]}
		opts, _ := e.(object)["opts"].(object)
		for name, value := range opts {
			event[name] = value
		}
		events[i] = event
	}
	return object{"op": "PUBLISH", "corr": f["corr"], "events": events}
}

// caseStep has the members of all steps.
type caseStep struct {
	As, Topic, Group, ID, Key, Error, Cause, Of, Code, From string
	Payload                                                 json.RawMessage
	Concurrency, MaxAttempts                                int
	Rebalance, DeadLetter                                   bool
	RetryInMS, HoldMS                                       *int
	Receipt                                                 object
	IDs, Stale                                              []string
}

func (r *caseRun) step(verb string, argument json.RawMessage) error {
	var s caseStep
	var text string
	_ = json.Unmarshal(argument, &s)    // it is an object,
	_ = json.Unmarshal(argument, &text) // or a text, or neither
	switch verb {
	case "publish":
		done := make(chan sluice.Result, 1)
		r.results[s.As] = done
		e := sluice.Event{Topic: s.Topic, ID: s.ID, Key: s.Key, Payload: s.Payload}
		return r.client.Publisher().Publish(r.ctx, &e, func(receipt sluice.Receipt, err error) {
			done <- sluice.Result{Receipt: receipt, Err: err}
		})
	case "subscribe":
		go r.subscribe(&s)
	case "return":
		r.handler(text).end <- nil
	case "throw":
		r.handler(s.ID).end <- s.err()
	case "ack":
		r.ack(&s)
	case "acked":
		return r.acked(&s)
	case "pause", "resume", "stop", "drain":
		sub := r.subscription()
		map[string]func(){"pause": sub.Pause, "resume": sub.Resume, "stop": sub.Stop, "drain": sub.Drain}[verb]()
	case "receive", "handled":
		return r.await(verb, decodeObject(argument))
	case "reply":
		reply := object{"op": "OK", "corr": r.last.body["corr"]}
		for name, value := range decodeObject(argument) {
			reply[name] = r.filled(value)
		}
		return r.write(r.last.conn, reply)
	case "deliver":
		return r.deliver(argument)
	case "send":
		return r.write(r.of["subscribe"].conn, decodeObject(argument))
	case "cut":
		return r.of[text].conn.CloseNow()
	case "close":
		var code struct{ Code websocket.StatusCode }
		_ = json.Unmarshal(argument, &code)
		_ = r.of[s.Of].conn.Close(code.Code, "") // the client need not answer
	case "mute":
		r.mu.Lock()
		defer r.mu.Unlock()
		for conn := range r.conns {
			r.conns[conn] = true
		}
	case "aborted":
		return r.aborted(&s)
	case "result":
		return r.result(&s)
	case "ended":
		return r.ended(s.Code)
	case "quiet":
		time.Sleep(caseQuiet)
		return r.nothingIsLeft()
	default:
		return errors.New("no such step")
	}
	return nil
}

func (s *caseStep) err() error {
	err := errors.New(s.Error)
	switch {
	case s.RetryInMS != nil:
		return sluice.RetryIn(time.Duration(*s.RetryInMS)*time.Millisecond, err)
	case s.HoldMS != nil:
		return sluice.Hold(time.Duration(*s.HoldMS)*time.Millisecond, err)
	case s.DeadLetter:
		return sluice.DeadLetter(err)
	}
	return err
}

func (r *caseRun) subscribe(s *caseStep) {
	var opts []option.Subscribe
	if s.From == "earliest" {
		opts = append(opts, option.FromEarliest())
	}
	if s.Concurrency > 0 {
		opts = append(opts, option.Concurrency(s.Concurrency))
	}
	if s.MaxAttempts > 0 {
		opts = append(opts, option.MaxAttempts(s.MaxAttempts))
	}
	if s.Rebalance {
		opts = append(opts, option.OnAssigned(func(context.Context, []int) {}))
	}
	sub, err := r.client.Subscribe(r.ctx, s.Topic, s.Group, func(ctx context.Context, m *sluice.Message) error {
		h := &caseHandler{ctx, m, make(chan error, 1)}
		r.mu.Lock()
		r.handlers[m.Event.ID] = h
		r.mu.Unlock()
		r.calls <- object{"id": m.Event.ID, "attempt": float64(m.Attempt)}
		return <-h.end
	}, opts...)
	if err == nil {
		r.sub <- sub
	}
}

func (r *caseRun) handler(id string) *caseHandler {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h := r.handlers[id]; h != nil {
		return h
	}
	r.t.Fatalf("no handler has %s", id)
	return nil
}

func (r *caseRun) subscription() *sluice.Subscription {
	select {
	case sub := <-r.sub:
		r.sub <- sub
		return sub
	case <-r.ctx.Done():
		r.t.Fatal("there is no subscription")
		return nil
	}
}

func (r *caseRun) await(verb string, want object) error {
	var got object
	select {
	case r.last = <-orNil(r.frames, verb == "receive"):
		got = r.last.body
		r.of[strings.ToLower(fmt.Sprint(got["op"]))] = r.last
	case got = <-orNil(r.calls, verb == "handled"):
	case <-r.ctx.Done():
		return r.ctx.Err()
	}
	return r.match(got, want, "")
}

func orNil[T any](c chan T, wanted bool) chan T {
	if wanted {
		return c
	}
	return nil
}

func (r *caseRun) deliver(argument json.RawMessage) error {
	var events []object
	if err := json.Unmarshal(argument, &events); err != nil {
		return err
	}
	subscribed := r.of["subscribe"]
	deliveries := make([]object, len(events))
	for i, given := range events {
		ctx := object{"attempt": 1, "ack_deadline_ms": 30000}
		event := object{"ts": 1, "topic": subscribed.body["topic"], "partition": 0, "payload": 1}
		for name, value := range given {
			if _, of := ctx[name]; of {
				ctx[name] = value
			} else {
				event[name] = value
			}
		}
		deliveries[i] = object{"event": event, "ctx": ctx}
	}
	frame := object{"op": "EVENTS", "events": deliveries}
	if len(deliveries) == 1 {
		frame = deliveries[0]
		frame["op"] = "EVENT"
	}
	frame["topic"] = subscribed.body["topic"]
	if group, ok := subscribed.body["group"]; ok {
		frame["group"] = group
	}
	return r.write(subscribed.conn, frame)
}

func (r *caseRun) aborted(s *caseStep) error {
	ctx := r.handler(s.ID).ctx
	select {
	case <-ctx.Done():
	case <-r.ctx.Done():
		return errors.New("its context does not end")
	}
	is := "closed"
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, sluice.ErrRevoked):
		is = "revoked"
	case errors.Is(cause, sluice.ErrLost):
		is = "lost"
	}
	return r.match(is, s.Cause, "cause")
}

func (r *caseRun) ack(s *caseStep) {
	done, h := make(chan sluice.Result, 1), r.handler(s.ID)
	r.results[s.As] = done
	go func() { done <- sluice.Result{Err: h.m.Ack(r.ctx)} }()
}

func (r *caseRun) acked(s *caseStep) error {
	for left := s.IDs; len(left) > 0; {
		if err := r.await("receive", object{"op": "ACK"}); err != nil {
			return err
		}
		reply := object{"op": "OK", "corr": r.last.body["corr"]}
		var lost []any
		ids, _ := r.last.body["ids"].([]any)
		for _, id := range ids {
			i := slices.Index(left, id.(string))
			if i < 0 {
				return fmt.Errorf("%v is acked", id)
			}
			left = slices.Delete(left, i, i+1)
			if slices.Contains(s.Stale, id.(string)) {
				lost = append(lost, id)
			}
		}
		if lost != nil {
			reply["op"], reply["code"], reply["msg"], reply["ids"] = "ERR", "stale_lease", "lost", lost
		}
		if err := r.write(r.last.conn, reply); err != nil {
			return err
		}
	}
	return nil
}

func (r *caseRun) result(s *caseStep) error {
	select {
	case result := <-r.results[s.Of]:
		if s.Code != "" || result.Err != nil || s.Receipt == nil {
			return r.match(codeOf(result.Err), s.Code, "code")
		}
		return r.match(decodeObject(codec.AppendReceiptBody(nil, &result.Receipt)), s.Receipt, "")
	case <-r.ctx.Done():
		return r.ctx.Err()
	}
}

// codeOf is the code of a refusal, "" of no error.
func codeOf(err error) string {
	var refusal *sluice.Error
	switch {
	case err == nil:
		return ""
	case errors.As(err, &refusal):
		return string(refusal.Code)
	}
	return err.Error()
}

func (r *caseRun) ended(code string) error {
	sub := r.subscription()
	select {
	case <-sub.Closed():
		return r.match(codeOf(sub.Err()), code, "code")
	case <-r.ctx.Done():
		return r.ctx.Err()
	}
}

func (r *caseRun) nothingIsLeft() error {
	select {
	case frame := <-r.frames:
		return fmt.Errorf("the frame %v", frame.body)
	case call := <-r.calls:
		return fmt.Errorf("the handler is called with %v", call)
	default:
		return nil
	}
}

// filled is a value with the names of $ in place.
func (r *caseRun) filled(value any) any {
	if name, ok := value.(string); ok && r.names[name] != nil {
		return r.names[name]
	}
	return value
}

// match compares what a case names, and no more.
func (r *caseRun) match(got, want any, at string) error {
	switch want := want.(type) {
	case string:
		if strings.HasPrefix(want, "$") && r.names[want] == nil {
			r.names[want] = got
		}
		if got != r.filled(want) {
			return fmt.Errorf("%s is %v", at, got)
		}
		return nil
	case object:
		members, _ := got.(object)
		for name, value := range want {
			if err := r.match(members[name], value, at+"/"+name); err != nil {
				return err
			}
		}
		return nil
	case []any:
		list, _ := got.([]any)
		if len(list) != len(want) {
			return fmt.Errorf("%s is %v", at, got)
		}
		for i := range want {
			if err := r.match(list[i], want[i], fmt.Sprintf("%s/%d", at, i)); err != nil {
				return err
			}
		}
		return nil
	}
	if !reflect.DeepEqual(got, want) {
		return fmt.Errorf("%s is %v", at, got)
	}
	return nil
}
