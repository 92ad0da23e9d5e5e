package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"

	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/internal/terminal"
	"github.com/sluice-bus/sluice/sdk/option"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
)

type pubCommand struct {
	Topic   string   `arg:"" help:"The topic."`
	Payload *string  `arg:"" optional:"" help:"The payload: JSON, or anything at all with --bytes. Without it, it is read from --file or standard input."`
	Key     string   `help:"The key: events of one key keep their order."`
	ID      string   `name:"id" help:"The event's id; publishing it again is harmless. Default: a new UUID."`
	Header  []string `sep:"none" placeholder:"NAME=VALUE" help:"A header; may be repeated."`
	File    string   `placeholder:"FILE" help:"Read the payload from this file; - is standard input."`
	Bytes   bool     `xor:"form" help:"The payload is bytes and need not be JSON."`
	Lines   bool     `xor:"form" help:"Each line is the JSON payload of an event of its own."`

	Delay     *time.Duration `xor:"later" placeholder:"DURATION" help:"Put it into the log that long from now, up to a year."`
	DeliverAt *time.Time     `xor:"later" placeholder:"TIME" help:"Put it into the log at this time, as 2006-01-02T15:04:05Z."`
	TTL       *time.Duration `name:"ttl" placeholder:"DURATION" help:"Groups get it only within this time after its acceptance."`
}

func (*pubCommand) Help() string {
	return `Prints the receipt: id, partition and seq. An event that the sidecar refuses
because of a rate limit, or because it is overloaded, is published again after
the time that the sidecar names, under the same id. The same holds if the
connection is lost or the sidecar restarts: nothing is published twice. If the
sidecar does not answer within --timeout, or its store is away for that long,
the command fails with exit status 1.

With --lines many events are published at a time, and a summary is printed.
Lines that are refused for another reason are named, the others published, and
the exit status is 4 (1 where none was published). With --key the events are in the order of the lines, as
long as the sidecar is not so overloaded that it refuses parts of a batch.

With --delay or --deliver-at the sidecar keeps the event and nobody reads it until
it is due; sluice scheduled lists and cancels such events.

Examples:

  sluice pub orders '{"order":17}' --key customer-3 --header region=eu
  sluice pub orders --file order.json
  sluice pub photos --file photo.jpg --bytes --header content-type=image/jpeg
  sluice pub reminders '{"to":"ann"}' --delay 1h
  generate-orders | sluice pub orders --lines`
}

// Run publishes.
func (p *pubCommand) Run(ctx context.Context, app *program.App, c *client) error {
	template, err := p.event()
	if err != nil {
		return err
	}
	opts, err := p.options()
	if err != nil {
		return err
	}
	if p.Lines {
		in, err := p.open(app)
		if err != nil {
			return err
		}
		defer in.Close()
		return publishLines(ctx, app, c, in, func(line []byte) (wire.Event, error) {
			e := template
			e.Payload = line
			if _, err := compactJSON(line); err != nil {
				return e, fmt.Errorf("not JSON: %w", err)
			}
			return e, nil
		}, opts)
	}
	if template.Payload, err = p.payload(app); err != nil {
		return err
	}
	watch := newPubWatch(ctx, app, c.Timeout)
	defer watch.stop()
	client, err := watch.dial(c)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }() // the receipt has come, or the error is known
	watch.handed()
	receipt, err := client.Publish(watch.context, &template, opts...)
	watch.answered()
	if err != nil {
		return watch.cause(err)
	}
	return printReceipt(app.Stdout, receipt, c.Output)
}

// event checks the flags and makes an event of them, without a payload.
func (p *pubCommand) event() (wire.Event, error) {
	e := wire.Event{ID: p.ID, Topic: p.Topic, Key: p.Key, Binary: p.Bytes}
	switch {
	case p.Lines && p.ID != "":
		return e, program.Usagef("--id names one event, but --lines publishes several")
	case p.Lines && p.Payload != nil:
		return e, program.Usagef("--lines reads the payloads from --file or standard input; a payload cannot be given, too")
	case p.Payload != nil && p.File != "":
		return e, program.Usagef("the payload is given twice: as an argument and with --file")
	}
	for _, text := range p.Header {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return e, program.Usagef("--header %q: expected NAME=VALUE", text)
		}
		e.Headers = e.Headers.With(name, value)
	}
	if _, ok := e.Headers.Get("content-type"); p.Bytes && !ok {
		e.Headers = e.Headers.With("content-type", "application/octet-stream")
	}
	if err := codec.CheckTopic(p.Topic); err != nil {
		return e, program.Usagef("%s", err.Msg)
	}
	return e, nil
}

// options are those of each event.
func (p *pubCommand) options() (opts []option.Event, err error) {
	switch {
	case p.Delay != nil && (*p.Delay < 0 || p.Delay.Milliseconds() > wire.MaxLaterMS):
		return nil, program.Usagef("--delay=%v: 0 to %v are allowed, which is a year", *p.Delay, wire.MaxLaterMS*time.Millisecond)
	case p.TTL != nil && (*p.TTL <= 0 || p.TTL.Milliseconds() > wire.MaxTTLMS):
		return nil, program.Usagef("--ttl=%v: more than 0 and up to %v are allowed, which is ten years", *p.TTL, wire.MaxTTLMS*time.Millisecond)
	}
	if p.Delay != nil {
		opts = append(opts, option.Delay(*p.Delay))
	}
	if p.DeliverAt != nil {
		opts = append(opts, option.DeliverAt(*p.DeliverAt))
	}
	if p.TTL != nil {
		opts = append(opts, option.TTL(*p.TTL))
	}
	return opts, nil
}

func (p *pubCommand) payload(app *program.App) ([]byte, error) {
	var text []byte
	if p.Payload != nil {
		text = []byte(*p.Payload)
	} else {
		in, err := p.open(app)
		if err != nil {
			return nil, err
		}
		defer in.Close()
		if text, err = io.ReadAll(in); err != nil {
			return nil, fmt.Errorf("reading the payload: %w", err)
		}
	}
	if p.Bytes {
		return text, nil
	}
	compact, err := compactJSON(text)
	if err != nil {
		return nil, program.Usagef(`the payload is not JSON: %w (a text is written '"text"'; --bytes publishes anything)`, err)
	}
	return compact, nil
}

// open opens --file, or standard input.
func (p *pubCommand) open(app *program.App) (io.ReadCloser, error) {
	switch {
	case p.File != "" && p.File != "-":
		return os.Open(p.File)
	case p.File == "" && isTerminal(app.Stdin):
		return nil, program.Usagef("nothing to publish: give a payload, --file FILE, or pipe something in")
	}
	return io.NopCloser(app.Stdin), nil
}

func isTerminal(r io.Reader) bool {
	file, ok := r.(*os.File)
	return ok && terminal.Is(file)
}

// compactJSON leaves all limits to the sidecar, which may have other ones than the defaults.
func compactJSON(text []byte) ([]byte, error) {
	return codec.AppendCompact(nil, text, math.MaxInt32)
}

func printReceipt(w io.Writer, r wire.Receipt, output format) error {
	if output.isDocument() {
		return output.writeText(w, codec.AppendReceiptBody(nil, &r))
	}
	line := r.ID
	if r.Seq != 0 {
		line = fmt.Sprintf("%s  partition %d  seq %d", r.ID, r.Partition, r.Seq)
	}
	if r.DeliverAt != 0 && r.Seq == 0 {
		line = fmt.Sprintf("%s  scheduled for %s", r.ID, milliseconds(r.DeliverAt))
	}
	if r.Spooled {
		line += "  spooled: durable, and not yet in the store"
	}
	if r.Duplicate {
		line += "  (published before)"
	}
	_, err := fmt.Fprintln(w, line)
	return err
}
