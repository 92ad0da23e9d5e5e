package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/internal/terminal"
	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/wire"
)

const (
	// A batch takes its tokens all or nothing: within the default burst of 200
	// it is not refused for its size.
	batchEvents = 100
	batchBytes  = 1 << 20
	// unkeyedBatches are on their way at a time. Events of one key must not
	// overtake each other when a batch is refused, so with --key it is one.
	unkeyedBatches = 4
	queuedLines    = 4 * batchEvents
	shownFailures  = 10
)

// line is a payload and where it stands.
type line struct {
	number  int
	payload []byte
}

// linePublisher publishes lines in batches.
type linePublisher struct {
	client   *client
	conn     *sluice.Conn
	template wire.Event
	stderr   io.Writer
	progress *terminal.Progress
	lines    chan line

	mu      sync.Mutex
	summary pubSummary
}

// pubSummary is how it went.
type pubSummary struct {
	Published  int   `json:"published"` // duplicates included
	Duplicates int   `json:"duplicates"`
	Failed     int   `json:"failed"`
	Waits      int   `json:"waits"` // refusals that were waited out
	MS         int64 `json:"ms"`
}

func (p *pubCommand) publishLines(ctx context.Context, app *program.App, c *client, template wire.Event) error {
	in, err := p.open(app)
	if err != nil {
		return err
	}
	defer in.Close()
	total, err := countLines(in, app.Stderr)
	if err != nil {
		return err
	}
	conn, err := c.dial(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // everything is answered, or the error is known

	l := &linePublisher{client: c, conn: conn, template: template, stderr: app.Stderr, lines: make(chan line, queuedLines)}
	l.progress = terminal.NewProgress(app.Stderr, "publishing", total)
	began := time.Now()
	err = l.run(ctx, in)
	l.progress.Finish()
	l.summary.MS = time.Since(began).Milliseconds()
	return errors.Join(err, l.summary.print(app.Stdout, c.JSON, err == nil))
}

// countLines tells how many lines there are where somebody watches and that is
// known beforehand, else 0.
func countLines(in io.Reader, stderr io.Writer) (count int64, err error) {
	file, ok := in.(*os.File)
	if !ok || !terminal.Is(stderr) {
		return 0, nil
	}
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return 0, err
	}
	buffer := make([]byte, 256<<10)
	for {
		n, err := file.Read(buffer)
		count += int64(bytes.Count(buffer[:n], []byte{'\n'}))
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return 0, err
		}
	}
	_, err = file.Seek(0, io.SeekStart)
	return count, err
}

// run publishes all lines. An error means that it did not get to the end.
func (l *linePublisher) run(ctx context.Context, in io.Reader) error {
	workers := unkeyedBatches
	if l.template.Key != "" {
		workers = 1
	}
	group, ctx := errgroup.WithContext(ctx)
	readError := make(chan error, 1)
	go func() { // not waited for: nothing ends a read from a terminal or pipe
		defer close(l.lines)
		readError <- l.read(ctx, in)
	}()
	for range workers {
		group.Go(func() error {
			for {
				batch, err := l.gather(ctx)
				if err != nil || len(batch) == 0 {
					return err
				}
				if err := l.publish(ctx, batch); err != nil {
					return err
				}
			}
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return <-readError
}

// read passes on the lines that hold anything.
func (l *linePublisher) read(ctx context.Context, in io.Reader) error {
	reader := bufio.NewReaderSize(in, 64<<10)
	for number := 1; ; number++ {
		text, err := reader.ReadBytes('\n')
		if text = bytes.TrimSpace(text); len(text) > 0 {
			select {
			case l.lines <- line{number, text}:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading line %d: %w", number, err)
		}
	}
}

// gather waits for a line, and takes with it what else is there already. An
// empty batch is the end.
func (l *linePublisher) gather(ctx context.Context) (batch []line, err error) {
	size := 0
	take := func(next line) {
		batch = append(batch, next)
		size += len(next.payload)
	}
	select {
	case next, ok := <-l.lines:
		if !ok {
			return nil, nil
		}
		take(next)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	for len(batch) < batchEvents && size < batchBytes {
		select {
		case next, ok := <-l.lines:
			if !ok {
				return batch, nil
			}
			take(next)
		default:
			return batch, nil
		}
	}
	return batch, nil
}

// publish publishes a batch and counts how it went. An error means that it is
// no use to go on.
func (l *linePublisher) publish(ctx context.Context, batch []line) error {
	events := make([]wire.Event, 0, len(batch))
	numbers := make([]int, 0, len(batch))
	for _, next := range batch {
		payload, err := compactJSON(next.payload)
		if err != nil {
			l.failed(next.number, fmt.Errorf("not JSON: %w", err))
			continue
		}
		e := l.template
		e.ID, e.Payload = newID(), payload
		events = append(events, e)
		numbers = append(numbers, next.number)
	}
	return l.send(ctx, events, numbers)
}

// send publishes events until each of them is accepted or refused for good.
func (l *linePublisher) send(ctx context.Context, events []wire.Event, numbers []int) error {
	for len(events) > 0 {
		var results []wire.ResultItem
		err := l.client.ask(ctx, func(ctx context.Context) (err error) {
			results, err = l.conn.PublishBatch(ctx, l.template.Topic, events)
			return err
		})
		if err != nil {
			refusal, ok := errors.AsType[*wire.Error](err)
			if !ok {
				return fmt.Errorf("from line %d on it is not known what was published: %w", numbers[0], err)
			}
			if tooLarge(refusal) && len(events) > 1 {
				half := len(events) / 2
				if err := l.send(ctx, events[:half], numbers[:half]); err != nil {
					return err
				}
				events, numbers = events[half:], numbers[half:]
				continue
			}
			results = slices.Repeat([]wire.ResultItem{{Err: refusal}}, len(events))
		}
		var wait time.Duration
		events, numbers, wait = l.settle(events, numbers, results)
		if len(events) > 0 {
			if !pause.For(ctx, wait) {
				return ctx.Err()
			}
		}
	}
	return nil
}

// tooLarge tells whether a smaller batch might be accepted: one that is larger
// than a bucket's burst is bad_request.
func tooLarge(refusal *wire.Error) bool {
	return refusal.Code == wire.BadRequest || refusal.Code == wire.PayloadTooLarge
}

// settle counts the results, and returns what to publish again, after which
// wait.
func (l *linePublisher) settle(events []wire.Event, numbers []int, results []wire.ResultItem) (again []wire.Event, where []int, wait time.Duration) {
	published := 0
	for i := range results {
		if results[i].Err == nil {
			published++
			l.accepted(&results[i].Receipt)
			continue
		}
		if w, ok := patience(results[i].Err); ok {
			wait = max(wait, w)
			again, where = append(again, events[i]), append(where, numbers[i])
			continue
		}
		l.failed(numbers[i], results[i].Err)
	}
	l.progress.Add(int64(published))
	if len(again) > 0 {
		l.mu.Lock()
		l.summary.Waits++
		l.mu.Unlock()
	}
	return again, where, wait
}

func (l *linePublisher) accepted(r *wire.Receipt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.summary.Published++
	if r.Duplicate {
		l.summary.Duplicates++
	}
}

// failed counts a line, and names it if not too many were named.
func (l *linePublisher) failed(number int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.summary.Failed++
	switch {
	case l.summary.Failed < shownFailures:
		fmt.Fprintf(l.stderr, "line %d: %v\n", number, err)
	case l.summary.Failed == shownFailures:
		fmt.Fprintf(l.stderr, "line %d: %v (further ones are only counted)\n", number, err)
	}
}

// print writes the summary. Where it is the whole story, its error says that
// lines failed.
func (s *pubSummary) print(w io.Writer, asJSON, whole bool) error {
	if asJSON {
		if err := printJSON(w, s); err != nil {
			return err
		}
	} else {
		line := fmt.Sprintf("published %d events in %v", s.Published, time.Duration(s.MS)*time.Millisecond)
		if s.MS > 0 {
			line += fmt.Sprintf(" (%d/s)", int64(s.Published)*1000/s.MS)
		}
		if s.Duplicates > 0 {
			line += fmt.Sprintf(", %d of them published before", s.Duplicates)
		}
		if s.Waits > 0 {
			line += fmt.Sprintf(", %d refusals waited out", s.Waits)
		}
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	if whole && s.Failed > 0 {
		return fmt.Errorf("%d lines were not published", s.Failed)
	}
	return nil
}
