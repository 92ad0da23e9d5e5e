package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/option"
)

// table shows the states as they change: in place on a terminal, elsewhere a line for each change.
type table struct {
	live bool

	mu      sync.Mutex
	states  map[string]state
	shown   int           // lines of the table on the terminal, right above the cursor
	changed chan struct{} // holds one element after a change
}

// startTable follows process.state without a group: it gets every event, and nothing is remembered of it.
func startTable(ctx context.Context, client *sluice.Client) (*table, error) {
	out, err := os.Stdout.Stat()
	if err != nil {
		return nil, err
	}
	t := &table{live: out.Mode()&os.ModeCharDevice != 0, states: map[string]state{}, changed: make(chan struct{}, 1)}
	_, err = client.Subscribe(ctx, states, "", t.handle, option.FromEarliest()) // ends with the client
	return t, err
}

func (t *table) handle(_ context.Context, m *sluice.Message) error {
	var s state
	if err := json.Unmarshal(m.Event.Payload, &s); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.states[m.Event.Key] = s
	if t.live {
		if t.shown > 0 {
			fmt.Printf("\x1b[%dA\x1b[J", t.shown) // up, and clear the table that is there
		}
		fmt.Print(format(t.states))
		t.shown = len(t.states) + 1
	} else {
		fmt.Printf("%-10s %-11s since round %2d, caused by %s\n", m.Event.Key, s.State, s.Since, m.Event.CausedBy[0])
	}
	select {
	case t.changed <- struct{}{}:
	default:
	}
	return nil
}

// say prints a line; the next change is shown below it.
func (t *table) say(line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Println(line)
	t.shown = 0
}

// await waits until the table shows these states.
func (t *table) await(ctx context.Context, want map[string]state) error {
	for {
		t.mu.Lock()
		is := maps.Clone(t.states)
		t.mu.Unlock()
		if maps.Equal(is, want) {
			return nil
		}
		select {
		case <-t.changed:
		case <-ctx.Done():
			return fmt.Errorf("the table shows %v, expected %v", is, want)
		}
	}
}

func format(states map[string]state) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-10s %-11s %s\n", "PROCESS", "STATE", "SINCE ROUND")
	for _, process := range slices.Sorted(maps.Keys(states)) {
		fmt.Fprintf(&b, "%-10s %-11s %d\n", process, states[process].State, states[process].Since)
	}
	return b.String()
}
