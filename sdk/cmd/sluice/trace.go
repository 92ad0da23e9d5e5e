package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/sdk/admin"
)

type traceCommand struct {
	Topic string `arg:"" help:"The topic."`
	ID    string `arg:"" help:"The event's id."`
}

func (*traceCommand) Help() string {
	return `Shows the life of an event, from the log and the groups: when it was published and
stored where, and for each group whether it is

  settled     acked; or passed over, as the group began behind the event, or
              filters kept it away: the log does not tell one from the other
  acked       acked for certain: the group remembers it (exactlyOnce)
  in flight   with a member, for the time shown
  waiting     for its turn, a member, earlier events of its key, its next attempt
  dead        in the dead letter topic, with the reason

What is with another sidecar is told as that saved it last; ask it for more.

Examples:

  sluice trace orders.created 01970c1e-7b3c-7e0a-9d55-0a4f6c1d2b3e
  sluice trace orders.created order-17 -o json | jq '.groups[] | select(.state=="dead")'`
}

// Run prints the life of the event.
func (t *traceCommand) Run(ctx context.Context, app *program.App, c *client, h *admin.HTTP) error {
	life := func(ctx context.Context) (admin.EventLife, error) {
		return ask(ctx, c, func(ctx context.Context) (admin.EventLife, error) {
			life, err := h.EventLife(ctx, t.Topic, t.ID)
			return life, nearestTopic(ctx, h, t.Topic, err)
		})
	}
	return show(ctx, app, c, false, life, func(s *sheet, l admin.EventLife) error { return printLife(s, &l) })
}

// stage is one line of a life, and those below it.
type stage struct {
	name, state, detail string
	below               []string
}

// printLife draws the stages of a life under the event.
func printLife(w io.Writer, l *admin.EventLife) error {
	stages := []stage{published(l), kept(l)}
	for i := range l.Groups {
		stages = append(stages, fateOf(&l.Groups[i], l))
	}
	names, states := 0, 0
	for _, s := range stages {
		names, states = max(names, len([]rune(s.name))), max(states, len([]rune(s.state)))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s\n", l.Event.Topic, l.Event.ID)
	for i, s := range stages {
		lead, bar := "├─", "│"
		if i == len(stages)-1 {
			lead, bar = "└─", " "
		}
		line := fmt.Sprintf("%s %-*s  %-*s  %s", lead, names, s.name, states, s.state, s.detail)
		b.WriteString(strings.TrimRight(line, " ") + "\n")
		for _, below := range s.below {
			fmt.Fprintf(&b, "%s  └─ %s\n", bar, below)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func published(l *admin.EventLife) stage {
	var more []string
	if l.Event.Key != "" {
		more = append(more, "key "+visible(l.Event.Key))
	}
	if l.TraceID != "" {
		more = append(more, "trace "+visible(l.TraceID))
	}
	if len(l.Event.CausedBy) > 0 {
		more = append(more, "caused by "+visible(strings.Join(l.Event.CausedBy, ",")))
	}
	return stage{name: "published", state: milliseconds(l.Event.TS), detail: strings.Join(more, ", ")}
}

func kept(l *admin.EventLife) stage {
	at := milliseconds(l.AcceptedAt.UnixMilli())
	if l.Stored == nil {
		who := "a sidecar"
		if l.Spooled != nil {
			who = l.Spooled.NodeID
		}
		return stage{name: "spooled", state: at, detail: "by " + who + " until its store is back; no group gets it before"}
	}
	return stage{name: "stored", state: at, detail: fmt.Sprintf("partition %d, seq %d, store %s", l.Stored.Partition, l.Stored.Seq,
		l.Stored.StoreID)}
}

// waitsFor says what an event waits for.
var waitsFor = map[string]string{
	"turn":        "for its turn",
	"member":      "for a member that may be sent it",
	"key_order":   "for earlier events of its key",
	"same_id":     "for an event with its id that is in flight",
	"backoff":     "to be delivered again",
	"dead_letter": "to be in the dead letter topic",
	"owner":       "with another sidecar, which alone knows more",
}

func fateOf(f *admin.EventFate, l *admin.EventLife) stage {
	s := stage{name: visible(f.Group), state: strings.ReplaceAll(f.State, "_", " ")}
	switch f.State {
	case admin.FateSettled:
		s.detail = "acked, or passed over"
	case admin.FateInflight:
		s.detail = fmt.Sprintf("attempt %d, with %s", f.Attempts, visible(cmp.Or(f.Member, "a member at "+f.Owner)))
		if f.DueMS != nil {
			s.detail += fmt.Sprintf(", %s left", millis(*f.DueMS))
		}
	case admin.FateWaiting:
		s.detail = waiting(f, l)
	case admin.FateDead:
		if d := f.DeadLetter; d != nil {
			s.detail = fmt.Sprintf("%s: %s", times(d.Attempts), visible(d.Reason))
			at := "spooled"
			if d.Seq > 0 {
				at = fmt.Sprintf("partition %d, seq %d", d.Partition, d.Seq)
			}
			s.below = []string{fmt.Sprintf("%s  %s  %s  %s", d.Topic, visible(d.ID), milliseconds(d.TS), at)}
		}
	}
	return s
}

func waiting(f *admin.EventFate, l *admin.EventLife) string {
	parts := []string{waitsFor[f.WaitsFor]}
	if parts[0] == "" {
		parts[0] = visible(f.WaitsFor)
	}
	if f.WaitsFor == "turn" && l.Stored != nil && f.Cursor < l.Stored.Seq {
		parts[0] += fmt.Sprintf(", %d places behind the cursor", l.Stored.Seq-f.Cursor)
	}
	if f.DueMS != nil {
		parts = append(parts, "in "+millis(*f.DueMS))
	}
	if f.Attempts > 0 {
		parts = append(parts, "after "+times(f.Attempts))
	}
	if f.Owner == "" {
		parts = append(parts, "no sidecar delivers its partition")
	} else if f.WaitsFor == "owner" {
		parts = append(parts, visible(f.Owner))
	}
	return strings.Join(parts, ", ")
}

func millis(ms int64) string { return (time.Duration(ms) * time.Millisecond).String() }

func times(attempts int) string {
	if attempts == 1 {
		return "1 attempt"
	}
	return fmt.Sprintf("%d attempts", attempts)
}
