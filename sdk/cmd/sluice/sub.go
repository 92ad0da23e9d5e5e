package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"

	"github.com/sluice-bus/sluice/internal/program"
	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/wire"
)

type subCommand struct {
	Topic       string  `arg:"" help:"The topic."`
	Group       string  `help:"The consumer group. Without one, this command alone gets every event, and nothing is remembered."`
	From        string  `enum:",latest,earliest,ts,afterId" default:"" help:"Where to start while the group has no cursor: latest, earliest, ts or afterId."`
	TS          *int64  `name:"ts" placeholder:"MS" help:"With --from ts: milliseconds since the epoch."`
	AfterID     string  `placeholder:"ID" help:"With --from afterId: the last event that is not wanted."`
	Ack         string  `enum:"auto,manual" default:"auto" help:"With --group: auto acks what was printed, manual takes acks from standard input."`
	Max         int     `help:"Stop after that many events; 0 does not stop."`
	MaxInflight *int    `help:"How many events may wait for their ack (default: the topic's policy)."`
	Key         *string `help:"Only events with this key."`
	Tag         *string `help:"Only events with this tag."`
}

func (*subCommand) Help() string {
	return `Prints events as they come, one on each line, until it is interrupted; then it
gives back to the group what it did not ack, and exits with status 0.

With --ack manual, standard input is read for lines of these forms:

  ack ID [ID…]     the events are done
  nack ID [ID…]    deliver them again

The end of the input ends the subscription.

Examples:

  sluice sub orders
  sluice sub orders --group billing --from earliest
  sluice sub orders --from earliest --max 10 --json | jq .payload`
}

// Run subscribes and prints.
func (s *subCommand) Run(ctx context.Context, app *program.App, c *client) error {
	opts, err := s.options()
	if err != nil {
		return err
	}
	conn, err := c.dial(ctx)
	if err != nil {
		return err
	}
	v := &view{
		command: s, printer: eventPrinter{asJSON: c.JSON}, out: bufio.NewWriter(app.Stdout),
		conn: conn, events: make(chan []wire.Delivery), stop: make(chan struct{}),
	}
	err = c.ask(ctx, func(ctx context.Context) error {
		v.sub, err = conn.Subscribe(ctx, s.Topic, s.Group, opts, v.deliver)
		return err
	})
	if err == nil {
		err = v.run(ctx, s.orders(app.Stdin))
		close(v.stop)
		// The context may have ended; the good-bye has the timeout to itself.
		err = errors.Join(err, c.ask(context.WithoutCancel(ctx), v.leave))
	} else {
		close(v.stop)
	}
	if closed := conn.Close(); err == nil {
		err = closed
	}
	return err
}

func (s *subCommand) options() (*wire.SubscribeOptions, error) {
	if err := wire.CheckFrom(s.From, s.TS, s.AfterID); err != nil {
		return nil, program.Usagef("%s (--ts, --after-id)", err.Msg)
	}
	if s.Ack == "manual" && s.Group == "" {
		return nil, program.Usagef("--ack manual needs a --group: without one there is nothing to ack")
	}
	opts := &wire.SubscribeOptions{From: s.From, TS: s.TS, AfterID: s.AfterID, MaxInflight: s.MaxInflight}
	if s.Key != nil || s.Tag != nil {
		opts.Filter = &wire.Filter{Key: s.Key, Tag: s.Tag}
	}
	return opts, nil
}

// orders passes on the lines of standard input with --ack manual, and closes
// the channel at its end; else there are none.
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
	printer eventPrinter
	out     *bufio.Writer
	line    []byte // reused
	printed int

	conn   *sluice.Conn
	sub    *sluice.ConnSubscription
	events chan []wire.Delivery
	stop   chan struct{} // closed when nothing is printed any more

	refused atomic.Pointer[error] // the first ack that was
}

// deliver hands deliveries to run, and so keeps the sidecar waiting while they
// cannot be printed. What comes after the end goes back to the group.
func (v *view) deliver(deliveries []wire.Delivery) {
	select {
	case v.events <- deliveries:
	case <-v.stop:
	}
}

// run prints until it is interrupted, has printed enough, or something fails.
func (v *view) run(ctx context.Context, orders <-chan string) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-v.conn.Done():
			return v.conn.Err()
		case text, ok := <-orders:
			if !ok {
				return nil
			}
			if err := v.obey(text); err != nil {
				return err
			}
		case deliveries := <-v.events:
			if enough, err := v.print(deliveries); enough || err != nil {
				return err
			}
		}
		if err := v.refused.Load(); err != nil {
			return *err
		}
	}
}

// print prints deliveries, and acks them if that is wanted.
func (v *view) print(deliveries []wire.Delivery) (enough bool, err error) {
	if left := v.command.Max - v.printed; v.command.Max > 0 && len(deliveries) >= left {
		deliveries, enough = deliveries[:left], true
	}
	ids := make([]string, len(deliveries))
	for i := range deliveries {
		d := &deliveries[i]
		ids[i] = d.Event.ID
		v.line = v.printer.append(v.line[:0], &d.Event, d.Attempt)
		_, _ = v.out.Write(v.line) // Flush has the error
	}
	if err := v.out.Flush(); err != nil {
		return false, err
	}
	v.printed += len(deliveries)
	if v.command.Group != "" && v.command.Ack == "auto" {
		err = v.sub.AckAsync(v.settled, ids...)
	}
	return enough, err
}

func (v *view) settled(err error) {
	if err != nil {
		v.refused.CompareAndSwap(nil, &err)
	}
}

// obey does what a line of standard input says.
func (v *view) obey(text string) error {
	words := strings.Fields(text)
	switch {
	case len(words) == 0:
		return nil
	case len(words) >= 2 && words[0] == "ack":
		return v.sub.AckAsync(v.settled, words[1:]...)
	case len(words) >= 2 && words[0] == "nack":
		return v.sub.NackAsync(v.settled, sluice.Nack{}, words[1:]...)
	}
	return fmt.Errorf("standard input: %q is not understood; allowed are \"ack ID…\" and \"nack ID…\"", text)
}

// leave waits until the acks are durable, and gives back what was not acked.
func (v *view) leave(ctx context.Context) error {
	if v.conn.Err() != nil {
		return nil // run has said so
	}
	if err := v.conn.Flush(ctx); err != nil {
		return err
	}
	if err := v.refused.Load(); err != nil {
		return *err
	}
	return v.sub.Unsubscribe(ctx)
}
