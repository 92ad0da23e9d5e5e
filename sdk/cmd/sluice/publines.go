package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/internal/terminal"
	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/option"
	"github.com/sluice-bus/sluice/sdk/wire"
)

const (
	queuedLines   = 400
	shownFailures = 10
)

// line is a payload and where it stands.
type line struct {
	number  int
	payload []byte
}

// linePublisher publishes lines.
type linePublisher struct {
	publisher *sluice.Publisher
	watch     *pubWatch
	event     func(line []byte) (wire.Event, error)
	opts      []option.Event
	progress  *terminal.Progress
	lines     chan line

	mu      sync.Mutex
	summary pubSummary
	unsure  int // the first line that was not answered; 0: each was
}

// pubSummary is how it went.
type pubSummary struct {
	Published  int   `json:"published"` // duplicates included
	Duplicates int   `json:"duplicates"`
	Failed     int   `json:"failed"`
	Unanswered int   `json:"unanswered,omitempty"`
	Waits      int   `json:"waits"` // refusals that were waited out
	MS         int64 `json:"ms"`
}

// publishLines publishes the event that is made of each line, and prints a summary.
func publishLines(ctx context.Context, app *program.App, c *client, in io.Reader, event func([]byte) (wire.Event, error),
	opts []option.Event) error {
	total, err := countLines(in, app.Stderr)
	if err != nil {
		return err
	}
	watch := newPubWatch(ctx, app, c.Timeout)
	defer watch.stop()
	client, err := watch.dial(c)
	if err != nil {
		return err
	}
	l := &linePublisher{publisher: client.Publisher(), watch: watch, event: event, opts: opts, lines: make(chan line, queuedLines)}
	l.progress = terminal.NewProgress(app.Stderr, "publishing", total)
	began := time.Now()
	err = l.run(in)
	_ = client.Close() // everything is answered, or gets to know now that it is not
	l.progress.Finish()
	l.summary.MS, l.summary.Waits = time.Since(began).Milliseconds(), watch.waits
	if l.unsure > 0 {
		err = fmt.Errorf("from line %d on it is not known which events were published: %w", l.unsure, err)
	}
	return errors.Join(err, l.summary.print(app.Stdout, c.Output, err == nil))
}

// countLines returns the number of lines for a terminal where it is known beforehand, else 0.
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
func (l *linePublisher) run(in io.Reader) error {
	ctx := l.watch.context
	readError := make(chan error, 1)
	go func() { // not waited for: nothing ends a read from a terminal or pipe
		defer close(l.lines)
		readError <- l.read(ctx, in)
	}()
	for {
		select {
		case next, ok := <-l.lines:
			if !ok {
				err := l.publisher.Flush(ctx)
				if err != nil {
					err = l.watch.cause(err)
				}
				return errors.Join(err, <-readError)
			}
			if err := l.publish(ctx, next); err != nil {
				return l.watch.cause(err)
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
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

// publish hands a line over; its result is counted when it comes. An error means that it is no use
// to go on.
func (l *linePublisher) publish(ctx context.Context, next line) error {
	e, err := l.event(next.payload)
	if err != nil {
		l.failed(next.number, err)
		return nil
	}
	l.watch.handed()
	err = l.publisher.Publish(ctx, &e, func(r wire.Receipt, err error) { l.answered(next.number, r, err) }, l.opts...)
	if err == nil {
		return nil
	}
	l.watch.answered()
	if _, ok := errors.AsType[*wire.Error](err); !ok {
		return err
	}
	l.failed(next.number, err)
	return nil
}

// answered counts what became of a line.
func (l *linePublisher) answered(number int, r wire.Receipt, err error) {
	l.watch.answered()
	switch {
	case errors.Is(err, sluice.ErrClosed):
		l.mu.Lock()
		defer l.mu.Unlock()
		l.summary.Unanswered++
		if l.unsure == 0 || number < l.unsure {
			l.unsure = number
		}
	case err != nil:
		l.failed(number, err)
	default:
		l.progress.Add(1)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.summary.Published++
		if r.Duplicate {
			l.summary.Duplicates++
		}
	}
}

// failed counts a line, and names it if not too many were named.
func (l *linePublisher) failed(number int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.summary.Failed++
	switch {
	case l.summary.Failed < shownFailures:
		l.watch.notes.say("line %d: %v", number, err)
	case l.summary.Failed == shownFailures:
		l.watch.notes.say("line %d: %v (further ones are only counted)", number, err)
	}
}

// print writes the summary. Where it is the whole story, its error says that lines failed.
func (s *pubSummary) print(w io.Writer, output format, whole bool) error {
	if output.isDocument() {
		if err := output.write(w, s); err != nil {
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
		if s.Unanswered > 0 {
			line += fmt.Sprintf(", %d not answered", s.Unanswered)
		}
		if s.Waits > 0 {
			line += fmt.Sprintf(", %d refusals waited out", s.Waits)
		}
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	if !whole || s.Failed == 0 {
		return nil
	}
	err := fmt.Errorf("%d lines were not published", s.Failed)
	if s.Published > 0 {
		err = partError{err}
	}
	return err
}
