package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/internal/program"
	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/option"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
)

type subCommand struct {
	Topic       string  `arg:"" help:"The topic."`
	Group       string  `help:"The consumer group. Without one, this command alone gets every event, and nothing is remembered."`
	From        string  `default:"" placeholder:"WHEN" help:"Where to start while the group has no cursor: latest, earliest, a time (2026-11-27T10:00, or 1h for an hour ago), afterId or positions."`
	AfterID     string  `placeholder:"ID" help:"With --from afterId: the event to start after."`
	Positions   string  `placeholder:"JSON" help:"With --from positions: the last seq of each partition that is not wanted, as sluice latest prints them."`
	Ack         string  `enum:"auto,manual" default:"auto" help:"With --group: auto acks printed events, manual reads acks from standard input."`
	Max         int     `help:"Stop after that many events; 0 does not stop."`
	MaxInflight *int    `help:"How many events may wait for their ack (default: the topic's policy)."`
	Key         *string `help:"Only events with this key."`
	Tag         *string `help:"Only events with this tag."`

	keep func(*wire.Event) bool // which events are printed; nil: all
}

func (*subCommand) Help() string {
	return `Prints events as they come, one on each line, until it is interrupted; then it
gives back to the group what it did not ack, and exits with status 0.

With --ack manual, standard input is read for lines of these forms:

  ack ID [ID…]     the events are done
  nack ID [ID…]    deliver them again

The end of the input ends the subscription.

When the connection is lost, or the sidecar restarts, it subscribes again, for as
long as that takes, and says so on standard error. Nothing is missed: with a group, and
without one unless retention removes events meanwhile.

Examples:

  sluice sub orders
  sluice sub orders --group billing --from earliest
  sluice sub orders --from earliest --max 10 -o json | jq .payload`
}

// Run subscribes and prints.
func (s *subCommand) Run(ctx context.Context, app *program.App, c *client) error {
	opts, err := s.options()
	if err != nil {
		return err
	}
	v := newView(s, app, c.Output)
	client, err := c.dial(ctx, sluice.WithConnectionHook(v.connection))
	if err != nil {
		return err
	}
	_, err = ask(ctx, c, func(ctx context.Context) (*sluice.Subscription, error) {
		return client.Subscribe(ctx, s.Topic, s.Group, v.handle, opts...)
	})
	if err == nil {
		err = v.run(ctx, s.orders(app.Stdin))
		// The context may have ended; the good-bye has the timeout to itself.
		err = errors.Join(err, c.tell(context.WithoutCancel(ctx), v.drain))
	}
	_ = client.Close() // gives back unsettled events
	v.acks.Wait()
	return err
}

func (s *subCommand) options() ([]option.Subscribe, error) {
	at := wire.SubscribeOptions{From: s.From, AfterID: s.AfterID}
	var bad *wire.Error
	if s.Positions != "" {
		at.Positions, bad = codec.ParsePositions([]byte(s.Positions))
	}
	if ms, ok := parseMoment(s.From, time.Now()); ok {
		at.From, at.TS = wire.FromTS, &ms
	}
	if bad == nil {
		bad = codec.CheckFrom(&at)
	}
	if bad != nil {
		return nil, program.Usagef("%s (--from, --after-id, --positions)", bad.Msg)
	}
	if s.Ack == "manual" && s.Group == "" {
		return nil, program.Usagef("--ack manual needs a --group: without one there is nothing to ack")
	}
	var opts []option.Subscribe
	switch at.From {
	case wire.FromTS:
		opts = append(opts, option.FromTime(time.UnixMilli(*at.TS)))
	case wire.FromEarliest:
		opts = append(opts, option.FromEarliest())
	case wire.FromAfterID:
		opts = append(opts, option.AfterID(at.AfterID))
	case wire.FromPositions:
		opts = append(opts, option.FromPositions(at.Positions))
	}
	if s.Ack == "manual" {
		// An event that gets no ack by hand in time is to be shown again.
		opts = append(opts, option.ManualAck(), option.MaxExtension(0))
	}
	if s.MaxInflight != nil {
		opts = append(opts, option.MaxInflight(*s.MaxInflight))
	}
	if s.Key != nil || s.Tag != nil {
		opts = append(opts, option.WithFilter(wire.Filter{Key: s.Key, Tag: s.Tag}))
	}
	return opts, nil
}

// orders passes on the lines of standard input with --ack manual, and closes the channel at its
// end; else there are none.
func (s *subCommand) orders(stdin io.Reader) <-chan string {
	if s.Ack != "manual" {
		return nil
	}
	orders := make(chan string)
	go func() { // not waited for: nothing ends a read from a terminal or pipe
		defer close(orders)
		for lines := bufio.NewScanner(stdin); lines.Scan(); {
			orders <- lines.Text()
		}
	}()
	return orders
}

// view is a subscription that is printed.
type view struct {
	command *subCommand
	notes   *notes
	outage  outage
	end     chan error     // why it ends, the first reason; nil: enough is printed
	acks    sync.WaitGroup // settlements without an answer

	mu      sync.Mutex // held while an event is printed
	output  format
	out     *bufio.Writer
	line    []byte // reused
	printed int
	over    bool                       // nothing is printed any more
	inHand  map[string]*sluice.Message // with --ack manual

	ackMu   sync.Mutex
	backs   int // how often the connection came back
	unacked int // acks whose answer was lost in the present outage
}

func newView(s *subCommand, app *program.App, output format) *view {
	said := &notes{out: app.Stderr}
	return &view{
		command: s, notes: said, outage: outage{notes: said}, end: make(chan error, 1),
		output: output, out: bufio.NewWriter(app.Stdout), inHand: map[string]*sluice.Message{},
	}
}

// connection says what became of the connection.
func (v *view) connection(c sluice.ConnectionChange) {
	if c.Topic == "" {
		return // nothing is published
	}
	if final(c.Err) {
		v.finish(c.Err)
		return
	}
	back := "the connection is back"
	if v.command.Group == "" {
		back += "; without a group, events of the meantime may be missing"
	}
	v.outage.happened(c, back)
	if c.Err == nil {
		v.ackMu.Lock()
		v.backs++
		v.unacked = 0 // the client acks them when they come again
		v.ackMu.Unlock()
	}
}

func (v *view) finish(err error) {
	select {
	case v.end <- err:
	default: // there is a reason already
	}
}

var errOver = errors.New("nothing is printed any more")

// handle prints an event, and acks it if that is wanted. It holds events that come after the end
// until the subscription stops, which gives them back.
func (v *view) handle(ctx context.Context, m *sluice.Message) error {
	v.ackMu.Lock()
	outages := v.backs
	v.ackMu.Unlock()
	if err := v.print(m, outages); err != nil {
		if !errors.Is(err, errOver) {
			v.finish(err)
		}
		<-ctx.Done()
		return err
	}
	return nil
}

// print prints an event that came after so many outages.
func (v *view) print(m *sluice.Message, outages int) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.over {
		return errOver
	}
	if keep := v.command.keep; keep != nil && !keep(&m.Event) {
		return nil
	}
	v.line = v.output.append(v.line[:0], &m.Event, m.Attempt)
	_, _ = v.out.Write(v.line) // Flush has the error
	if err := v.out.Flush(); err != nil {
		v.over = true
		return err
	}
	switch {
	case v.command.Ack == "manual":
		v.inHand[m.Event.ID] = m
	case v.command.Group != "":
		v.acks.Go(func() { v.acked(m.Ack(context.Background()), outages) }) // it has its answer when the client is closed
	}
	if v.printed++; v.printed == v.command.Max {
		v.over = true
		v.finish(nil)
	}
	return nil
}

// acked handles the answer to the ack of an event that came after so many outages.
func (v *view) acked(err error, outages int) {
	switch {
	case errors.Is(err, sluice.ErrLost):
		v.ackMu.Lock()
		defer v.ackMu.Unlock()
		if outages == v.backs {
			v.unacked++
		}
	case err != nil:
		v.finish(err)
	}
}

// run waits until it is interrupted, has printed enough, or something fails.
func (v *view) run(ctx context.Context, orders <-chan string) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-v.end:
			return err
		case text, ok := <-orders:
			if !ok {
				return nil
			}
			if err := v.obey(text); err != nil {
				return err
			}
		}
	}
}

// obey does what a line of standard input says.
func (v *view) obey(text string) error {
	words := strings.Fields(text)
	switch {
	case len(words) == 0:
		return nil
	case len(words) >= 2 && words[0] == "ack":
		v.settleByHand(words[1:], func(m *sluice.Message) error { return m.Ack(context.Background()) })
		return nil
	case len(words) >= 2 && words[0] == "nack":
		v.settleByHand(words[1:], func(m *sluice.Message) error { return m.Nack(context.Background(), sluice.Nack{}) })
		return nil
	}
	return fmt.Errorf("standard input: %q is not understood; allowed are \"ack ID…\" and \"nack ID…\"", text)
}

// settleByHand settles the events in hand with some ids. Acks of others are harmless.
func (v *view) settleByHand(ids []string, settle func(*sluice.Message) error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, id := range ids {
		m := v.inHand[id]
		if m == nil {
			continue
		}
		delete(v.inHand, id)
		v.acks.Go(func() {
			switch err := settle(m); {
			case errors.Is(err, sluice.ErrLost):
				v.notes.say("%s: the connection was lost meanwhile, so it may be delivered again", id)
			case err != nil:
				v.finish(err)
			}
		})
	}
}

// drain ends the printing, and waits until the acks are durable.
func (v *view) drain(ctx context.Context) error {
	v.mu.Lock()
	v.over = true
	v.mu.Unlock()
	answered := make(chan struct{})
	go func() { // Run waits for the same, after the client's end, which ends it
		v.acks.Wait()
		close(answered)
	}()
	select {
	case <-answered:
	case <-ctx.Done():
		return ctx.Err()
	}
	v.ackMu.Lock()
	unacked := v.unacked
	v.ackMu.Unlock()
	if unacked > 0 {
		return fmt.Errorf("the connection was lost before the last %d acks were answered: these events may be delivered again", unacked)
	}
	select {
	case err := <-v.end: // an ack that was refused
		return err
	default:
		return nil
	}
}
