package sluice

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/coder/websocket"
	"github.com/google/uuid"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
)

// prepare makes the event independent of the caller's, gives it an id, and refuses an event that
// would break the frame that it shares with others, or that JSON would change. The sidecar checks
// the limits.
func (e *entry) prepare() error {
	ev := &e.event
	const most = math.MaxInt
	lim := wire.Limits{PayloadBytes: most, HeaderCount: most, HeaderBytes: most, KeyBytes: most, JSONDepth: most}
	if ev.ID == "" {
		ev.ID, e.fresh = uuid.Must(uuid.NewV7()).String(), true
	}
	var bad *wire.Error
	if ev.Binary {
		ev.Payload = bytes.Clone(ev.Payload)
	} else {
		ev.Payload, bad = codec.CompactPayload(ev.Payload, lim)
	}
	bad = cmp.Or(bad, codec.CheckTopic(ev.Topic), codec.CheckID(ev.ID), codec.CheckKey(ev.Key, lim),
		codec.CheckHeaders(ev.Headers, lim), checkTexts(ev))
	if bad != nil {
		return bad
	}
	ev.Tags, ev.CausedBy = slices.Clone(ev.Tags), slices.Clone(ev.CausedBy)
	e.size = ev.Size()
	return nil
}

func (e *entry) item() *wire.PublishItem {
	return &wire.PublishItem{Event: e.event, HasTS: e.event.TS != 0, Later: e.later}
}

// nudge wakes the sender.
func (p *Publisher) nudge() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// serve sends the queued events over one connection, until it ends or ctx does. When it returns,
// nothing is on its way.
func (p *Publisher) serve(ctx context.Context, conn *Conn, up func()) error {
	up()
	timer := time.NewTimer(farAway)
	defer timer.Stop()
	defer func() { <-conn.Done() }() // until then answers come
	for {
		p.mu.Lock()
		batch, wait := p.queue.next(time.Now())
		p.mu.Unlock()
		if len(batch) > 0 {
			if err := p.send(ctx, conn, batch); err != nil {
				conn.abort(err)
				return nil // the connection says what it is
			}
			continue
		}
		timer.Reset(wait)
		select {
		case <-p.wake:
		case <-timer.C:
		case <-conn.Done():
			return nil
		case <-ctx.Done():
			p.mu.Lock()
			waiting := p.queue.requests > 0
			p.mu.Unlock()
			if waiting {
				conn.abort(errors.New("the publisher was closed"))
			} else {
				_ = conn.Close() // nobody is left to tell
			}
			return nil
		}
	}
}

// send sends a batch of one topic. After an error it was not sent, and is ready again.
func (p *Publisher) send(ctx context.Context, conn *Conn, batch []*entry) error {
	var err error
	if len(batch) == 1 {
		err = conn.publishAsync(ctx, batch[0].item(), func(r Receipt, err error) {
			p.answered(batch, []wire.ResultItem{{Receipt: r}}, err)
		})
	} else {
		item := func(i int) wire.PublishItem { return *batch[i].item() }
		err = conn.publishBatchAsync(ctx, batch[0].event.Topic, len(batch), item, func(items []wire.ResultItem, err error) {
			p.answered(batch, items, err)
		})
	}
	if err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.queue.putBack(batch)
		p.queue.ended(batch[0].topic)
	}
	return err
}

// answered takes the answer to a batch: its results, or the error of the whole batch.
func (p *Publisher) answered(batch []*entry, items []wire.ResultItem, err error) {
	var over results
	var asked *wire.Error // for the longest time
	var longest time.Duration
	p.mu.Lock()
	refusal, refused := asType[*wire.Error](err)
	switch {
	case err != nil && !refused:
		p.lost(batch, err, &over)
	case refused && len(batch) > 1 && (refusal.Code == wire.BadRequest || refusal.Code == wire.PayloadTooLarge):
		p.queue.tooLarge(batch[0].topic, len(batch)) // for a burst, say: which event is not known
		p.queue.putBack(batch)
	default:
		var again []*entry
		for i, e := range batch {
			of := refusal
			if !refused && items[i].Err != nil {
				of = items[i].Err
			}
			if of == nil {
				p.finish(e, items[i].Receipt, nil, &over)
				continue
			}
			e.refusal = of
			after, ok := worthRetrying(of)
			switch {
			case ok && p.closed:
				p.finish(e, Receipt{}, fmt.Errorf("%w while the sidecar asked for time: %w", ErrClosed, of), &over)
				continue
			case !ok || e.abandoned:
				p.finish(e, Receipt{}, of, &over)
				continue
			}
			p.queue.hold(e, time.Now().Add(after), of.Scope == "connection")
			again = append(again, e)
			if asked == nil || after > longest {
				asked, longest = of, after
			}
		}
		if len(again) == 0 {
			p.queue.flows(batch[0].topic)
		}
		p.queue.putBack(again)
	}
	p.queue.ended(batch[0].topic)
	p.nudge()
	p.mu.Unlock()
	if asked != nil {
		p.config.Asked(asked, longest)
	}
	p.tell(over)
}

// lost takes back a batch whose connection ended before the answer.
func (p *Publisher) lost(batch []*entry, err error, over *results) {
	if code := unbearable(err); code != "" {
		if batch[0].alone {
			p.queue.solo = false
			p.finish(batch[0], Receipt{}, wire.Errorf(code, "%v", err), over)
			return
		}
		p.queue.solo = true // to find out which event it was
	}
	var back []*entry
	for _, e := range batch {
		e.uncertain = true
		if e.abandoned {
			p.finish(e, Receipt{}, err, over)
			continue
		}
		back = append(back, e)
	}
	p.queue.putBack(back)
}

// checkTexts refuses texts that JSON cannot carry unchanged.
func checkTexts(e *Event) *wire.Error {
	if !utf8.ValidString(e.SID) {
		return wire.Errorf(wire.BadRequest, "sid is not valid UTF-8")
	}
	for _, list := range []struct {
		name  string
		texts []string
	}{{"tags", e.Tags}, {"caused_by", e.CausedBy}} {
		for _, text := range list.texts {
			if !utf8.ValidString(text) {
				return wire.Errorf(wire.BadRequest, "%s holds %q, which is not valid UTF-8", list.name, text)
			}
		}
	}
	return nil
}

// unbearable returns the code of the refusal where the sidecar ended the connection because of a
// message; "" otherwise.
func unbearable(err error) wire.Code {
	closed, ok := asType[closedError](err)
	switch {
	case ok && closed.is.Code == websocket.StatusMessageTooBig:
		return wire.PayloadTooLarge
	case ok && closed.is.Code == websocket.StatusInvalidFramePayloadData:
		return wire.BadRequest
	}
	return ""
}
