package sdk_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-bus/sluice/sdk/exactlyonce"
	"github.com/sluice-bus/sluice/sdk/mongo/oncestore"
	"github.com/sluice-bus/sluice/test/mongotest"
	"github.com/sluice-bus/sluice/test/require"
)

// The points at which a consumer is killed, as in the README's table.
const (
	beforeClaim = "before claim"
	afterClaim  = "after claim"
	inEffect    = "during effect"
	afterEffect = "after effect, before mark"
	// In DoTx the inserted mark is not committed then.
	markInserted = "after inserting the mark"
	afterMark    = "after mark, before ack"
)

const (
	killURI, killDatabase = "SLUICE_TEST_KILL_URI", "SLUICE_TEST_KILL_DATABASE"
	killForm, killPoint   = "SLUICE_TEST_KILL_FORM", "SLUICE_TEST_KILL_POINT"

	// Long enough that a busy machine does not lose it.
	killLease = 2 * time.Second
	// The server ends a transaction that was cut off after a minute. Until then no other process
	// can write its documents.
	killPatience = 3 * time.Minute
)

// outcome is the content of the database when all is over: how often the effect has begun, and how
// often it is there.
type outcome struct{ begun, there int }

// TestConsumerIsKilled kills a consumer with SIGKILL at each point, lets the next one have the event, and
// compares the database with the documentation.
func TestConsumerIsKilled(t *testing.T) {
	if os.Getenv(killURI) != "" {
		consume(t)
		return
	}
	plain := map[string]outcome{beforeClaim: {1, 1}, afterClaim: {1, 1}, inEffect: {2, 1}, afterEffect: {2, 2}, markInserted: {1, 1},
		afterMark: {1, 1}}
	for _, form := range []struct {
		name string
		want map[string]outcome
	}{
		{"Seen and Mark", plain},
		{"Do", plain},
		{"DoClaimed", map[string]outcome{beforeClaim: {1, 1}, afterClaim: {1, 1}, inEffect: {2, 1}, afterEffect: {2, 1}, markInserted: {1, 1},
			afterMark: {1, 1}}},
		{"DoTx", map[string]outcome{beforeClaim: {1, 1}, afterClaim: {1, 1}, inEffect: {1, 1}, afterEffect: {1, 1}, markInserted: {1, 1},
			afterMark: {1, 1}}},
	} {
		for _, point := range []string{beforeClaim, afterClaim, inEffect, afterEffect, markInserted, afterMark} {
			t.Run(form.name+"/"+point, func(t *testing.T) {
				t.Parallel() // most of it is waiting
				server := mongotest.Shared(t)
				name := server.NewDatabase(t)
				uri := server.URI(name)
				db := connectMongo(t, uri, name)
				if form.name == "DoTx" {
					uri, db = newTxDatabase(t)
				}
				newStore(t, db)
				for i, at := range []string{point, ""} {
					said := runConsumer(t, uri, db.Name(), form.name, at)
					if want := []string{"reached " + point, "acked"}[i]; said != want {
						t.Fatalf("consumer %d said %q, want %q", i+1, said, want)
					}
				}
				got := outcome{counter(t.Context(), t, db, "begun"), counter(t.Context(), t, db, "there") + results(t, db)}
				if want := form.want[point]; got != want {
					t.Errorf("the effect was begun and is there %+v times, want %+v", got, want)
				}
			})
		}
	}
}

// results is how many outcomes there are of the one event.
func results(t *testing.T, db *mongo.Database) int {
	t.Helper()
	n, err := db.Collection("results").CountDocuments(t.Context(), bson.D{})
	require.NoError(t, err)
	return int(n)
}

// runConsumer runs a consumer until it has printed a line, kills it, and returns the line.
func runConsumer(t *testing.T, uri, database, form, point string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), killPatience)
	defer cancel()
	child := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestConsumerIsKilled$")
	child.Env = append(os.Environ(), killURI+"="+uri, killDatabase+"="+database, killForm+"="+form, killPoint+"="+point)
	var stderr strings.Builder
	child.Stderr = &stderr
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	_ = child.Process.Kill() // it may have ended
	rest, _ := io.ReadAll(out)
	_ = child.Wait()
	if err != nil || len(rest) > 0 {
		t.Fatalf("the consumer said %q and %q, %v\n%s", line, rest, err, stderr.String())
	}
	return strings.TrimSuffix(line, "\n")
}

// consume is the consumer: it does the event's work, and stops for good where the test kills it.
func consume(t *testing.T) {
	time.AfterFunc(killPatience, func() { os.Exit(1) }) // the test has not killed it
	db := connectMongo(t, os.Getenv(killURI), os.Getenv(killDatabase))
	s := &killable{Store: oncestore.New(db, oncestore.Options{})}
	h := newStoreHandler(t, s, exactlyonce.Options{Lease: killLease, Wait: killPatience})
	require.NoError(t, consumeAs(t.Context(), os.Getenv(killForm), h, db))
	reach(afterMark)
	say("acked")
	select {}
}

func consumeAs(ctx context.Context, form string, h *exactlyonce.Handler, db *mongo.Database) error {
	const id = "order-1"
	effect := func(ctx context.Context) error {
		if err := begin(ctx, db); err != nil {
			return err
		}
		if err := incrementStored(ctx, db, "there"); err != nil {
			return err
		}
		reach(afterEffect)
		return nil
	}
	var err error
	switch form {
	case "Seen and Mark":
		reach(beforeClaim)
		var seen bool
		if seen, err = h.Seen(ctx, id); seen || err != nil {
			return err
		}
		reach(afterClaim)
		if err = effect(ctx); err == nil {
			err = h.Mark(ctx, id)
		}
	case "Do":
		_, err = h.Do(ctx, id, effect)
	case "DoClaimed":
		_, err = h.DoClaimed(ctx, id, func(ctx context.Context, c *exactlyonce.Claim) error {
			if err := begin(ctx, db); err != nil {
				return err
			}
			if err := oncestore.SetFenced(ctx, db.Collection("results"), c.ID, c, bson.D{{Key: "total", Value: 17}}); err != nil {
				return err
			}
			reach(afterEffect)
			return nil
		})
	case "DoTx":
		_, err = h.DoTx(ctx, id, effect)
	}
	return err
}

func begin(ctx context.Context, db *mongo.Database) error {
	if err := incrementStored(ctx, db, "begun"); err != nil {
		return err
	}
	reach(inEffect)
	return nil
}

// killable stops around the claim, and behind the mark.
type killable struct{ *oncestore.Store }

func (s *killable) Insert(ctx context.Context, r exactlyonce.Record) error {
	before, after := "", markInserted
	if r.Kind == exactlyonce.KindClaim {
		before, after = beforeClaim, afterClaim
	}
	reach(before)
	err := s.Store.Insert(ctx, r)
	if err == nil {
		reach(after)
	}
	return err
}

// reach stops this process for good at the point where the test kills it.
func reach(point string) {
	if point != "" && os.Getenv(killPoint) == point {
		say("reached " + point)
		select {}
	}
}

func say(line string) { fmt.Fprintln(os.Stdout, line) }
