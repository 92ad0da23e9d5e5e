//go:build go1.25

package sluice_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/option"
)

// groupOfTwo stands for a group on a sidecar: two members, and partitions that it moves between
// them at random, each with one event in flight at a time. It differs from a sidecar in that a
// member has done all that it does about a REVOKED before the event is with the other one.
type groupOfTwo struct {
	t         *testing.T
	rebalance bool

	mu      sync.Mutex
	random  *rand.Rand
	members []*websocket.Conn
	owner   []int // by partition
	current []int // number of the event in flight, by partition
	working []int // member whose handler has the partition's key; -1: none
	drains  []bool
	calls   int
}

func (g *groupOfTwo) id(partition int) string {
	return fmt.Sprintf("%d-%d", partition, g.current[partition])
}

func (g *groupOfTwo) send(member int, frame string) {
	if err := g.members[member].Write(context.Background(), websocket.MessageText, []byte(frame)); err != nil {
		g.t.Error(err)
	}
}

func (g *groupOfTwo) deliver(partition int) {
	g.send(g.owner[partition], fmt.Sprintf(`{"op":"EVENT","topic":"t","group":"g",`+
		`"event":{"id":%q,"topic":"t","ts":1,"partition":%d,"key":"%[2]d","payload":1},"ctx":{"attempt":1,"ack_deadline_ms":30000}}`,
		g.id(partition), partition))
}

func (g *groupOfTwo) serve(w http.ResponseWriter, r *http.Request) {
	ws, err := websocket.Accept(w, r, nil)
	if err != nil {
		return // the client's publisher has another path to its end
	}
	defer ws.CloseNow()
	member := -1
	for {
		_, text, err := ws.Read(r.Context())
		if err != nil {
			return
		}
		var frame struct {
			Op, Corr, ID string
			IDs          []string
		}
		if err := json.Unmarshal(text, &frame); err != nil {
			g.t.Error(err)
			return
		}
		g.mu.Lock()
		if frame.Op == "SUBSCRIBE" {
			member = len(g.members)
			g.members = append(g.members, ws)
		}
		g.answer(ws, member, frame.Op, frame.Corr, append(frame.IDs, frame.ID))
		g.mu.Unlock()
	}
}

func (g *groupOfTwo) answer(ws *websocket.Conn, member int, op, corr string, ids []string) {
	reply := okay
	var acked []int
	for _, id := range ids {
		settles := op == "ACK" || op == "NACK"
		p := -1
		for i := range g.owner {
			if g.id(i) == id && g.owner[i] == member {
				p = i
			}
		}
		switch {
		case id == "":
		case p < 0 && op == "MODACK":
			reply = `{"op":"ERR","code":"unknown_id","msg":"it is not in flight","corr":"%s"}`
		case p < 0 && settles && g.rebalance:
			g.t.Errorf("member %d settles %s, which it has lost", member, id)
		case p >= 0 && settles:
			acked = append(acked, p)
		}
	}
	_ = ws.Write(context.Background(), websocket.MessageText, []byte(strings.Replace(reply, "%s", corr, 1)))
	for _, p := range acked {
		g.current[p]++
		if !g.drains[p] {
			g.deliver(p)
		}
	}
}

func (g *groupOfTwo) handler(member int) sluice.Handler {
	return func(ctx context.Context, m *sluice.Message) error {
		p := m.Event.Partition
		g.mu.Lock()
		if other := g.working[p]; other >= 0 && other != member {
			g.t.Errorf("members %d and %d work on key %d at a time", other, member, p)
		}
		if g.owner[p] != member {
			g.t.Errorf("member %d handles %s, which is the other's", member, m.Event.ID)
		}
		g.working[p] = member
		g.calls++
		takes, fails := time.Duration(g.random.IntN(1000))*time.Millisecond, g.random.IntN(3) > 0
		g.mu.Unlock()
		select {
		case <-time.After(takes):
		case <-ctx.Done():
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		g.working[p] = -1
		if fails || ctx.Err() != nil {
			return errors.New("not this time")
		}
		return nil
	}
}

// settle waits until both members have done what they do about what they know.
func (g *groupOfTwo) settle() {
	g.mu.Unlock()
	synctest.Wait()
	g.mu.Lock()
}

// drainWait is how long a sidecar lets a member settle what it has of a partition that moves.
const drainWait = 3 * time.Second

// move gives a partition to the other member. Where members are not told, it lets the one that has
// it settle its event, and then waits until no handler works on that; it may still be one that is
// called again soon.
func (g *groupOfTwo) move(partition int) {
	from := g.owner[partition]
	g.drains[partition] = true
	if g.rebalance {
		g.send(from, fmt.Sprintf(`{"op":"REVOKED","topic":"t","group":"g","partitions":[%d]}`, partition))
	}
	if !g.rebalance {
		g.mu.Unlock()
		time.Sleep(drainWait)
		g.mu.Lock()
	}
	for g.settle(); g.working[partition] >= 0; g.settle() {
		g.mu.Unlock()
		time.Sleep(time.Millisecond)
		g.mu.Lock()
	}
	g.owner[partition], g.drains[partition] = 1-from, false
	if g.rebalance {
		g.send(1-from, fmt.Sprintf(`{"op":"ASSIGNED","topic":"t","group":"g","partitions":[%d]}`, partition))
	}
	g.deliver(partition)
}

// TestOneMemberWorksOnAKey: whenever partitions move, also while an event waits for another call of
// its handler.
func TestOneMemberWorksOnAKey(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { moveAtRandom(t, seed, seed%2 == 0) })
		})
	}
}

func moveAtRandom(t *testing.T, seed uint64, rebalance bool) {
	const partitions = 3
	g := &groupOfTwo{t: t, rebalance: rebalance, random: rand.New(rand.NewPCG(seed, 1)),
		owner: make([]int, partitions), current: make([]int, partitions), working: slices.Repeat([]int{-1}, partitions),
		drains: make([]bool, partitions)}
	server := httptest.NewUnstartedServer(http.HandlerFunc(g.serve))
	listener := newPipes()
	_ = server.Listener.Close()
	server.Listener = listener
	server.Start()
	defer server.Close()
	for member := range 2 {
		client, err := sluice.Dial(t.Context(), server.URL, sluice.WithDialer(listener.dial), sluice.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		opts := []option.Subscribe{option.Concurrency(partitions)}
		if rebalance {
			opts = append(opts, option.OnRevoked(func(context.Context, []int) {}))
		}
		if _, err := client.Subscribe(t.Context(), "t", "g", g.handler(member), opts...); err != nil {
			t.Fatal(err)
		}
	}
	g.mu.Lock()
	if rebalance {
		g.send(0, `{"op":"ASSIGNED","topic":"t","group":"g","partitions":[0,1,2]}`)
	}
	for p := range partitions {
		g.deliver(p)
	}
	for range 40 {
		pause := time.Duration(g.random.IntN(4000)) * time.Millisecond
		g.mu.Unlock()
		time.Sleep(pause)
		g.mu.Lock()
		g.move(g.random.IntN(partitions))
	}
	if done := g.current[0] + g.current[1] + g.current[2]; g.calls < 20 || done == 0 {
		t.Errorf("%d calls handled %d events", g.calls, done)
	}
	g.mu.Unlock()
}
