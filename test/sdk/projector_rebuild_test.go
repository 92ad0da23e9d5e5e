package sdk_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/mongo/projector"
	"github.com/sluice-bus/sluice/sdk/option"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/sluicetest"
)

// rebuilt waits until a rebuild has ended, and returns the reason why it was begun.
func rebuilt(t testing.TB, told <-chan projector.Progress) string {
	t.Helper()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for {
		select {
		case p := <-told:
			if p.Ended {
				return p.Why
			}
		case <-timeout.C:
			t.Fatal("no rebuild has ended")
		}
	}
}

// tell has the progress of rebuilds sent to a channel.
func tell(cfg *projector.Config) <-chan projector.Progress {
	told := make(chan projector.Progress, 1000)
	cfg.Observer.Rebuild = func(p projector.Progress) { told <- p }
	return told
}

// wantNothingElse waits until no rebuild has a collection or a group left. A group stays until the
// sidecar notices that a killed process is gone.
func wantNothingElse(t testing.TB, client *sluice.Client, coll *mongo.Collection, others ...string) {
	t.Helper()
	collections, groups := []string{coll.Name(), projector.StateCollection}, []string{projectedGroup}
	for _, suffix := range others {
		collections, groups = append(collections, coll.Name()+suffix), append(groups, projectedGroup+suffix)
	}
	slices.Sort(collections)
	await(t, func() error {
		has, err := coll.Database().ListCollectionNames(t.Context(), bson.D{})
		if err != nil {
			return err
		}
		if slices.Sort(has); !slices.Equal(has, collections) {
			return fmt.Errorf("the database has %q, want %q", has, collections)
		}
		has, err = client.HTTP().Groups(t.Context(), projectedTopic)
		if err == nil && !slices.Equal(has, groups) {
			err = fmt.Errorf("the topic has the groups %q, want %q", has, groups)
		}
		return err
	})
}

func TestRebuild(t *testing.T) {
	t.Parallel()
	coll, _ := newCollection(t)
	client := dialURL(t, startSidecar(t, sluicetest.Options{}).URL)
	if err := projector.Rebuild(t.Context(), coll, "test"); !errors.Is(err, mongo.ErrNoDocuments) {
		t.Errorf("a projection that never ran: %v", err)
	}
	_, err := coll.Indexes().CreateOne(t.Context(), mongo.IndexModel{Keys: bson.D{{Key: "email", Value: 1}},
		Options: options.Index().SetName("one_email").SetUnique(true).SetSparse(true)})
	require.NoError(t, err)
	cfg := configOf(coll)
	told := tell(&cfg)
	startProjector(t, client, cfg)
	want := map[string]string{}
	for i := range 200 {
		key, city := fmt.Sprint("k", i%50), fmt.Sprint("city ", i)
		publishCustomer(t, client, key, fmt.Sprintf(`{"city":%q,"email":"%s@x"}`, city, key))
		want[key] = city
	}
	publishCustomer(t, client, "k7", `null`)
	delete(want, "k7")
	publishCustomer(t, client, "", `{"city":"of nobody"}`)
	settled(t, client)
	// A change that no event makes.
	if _, err := coll.UpdateOne(t.Context(), bson.D{{Key: "_id", Value: "k1"}}, bson.D{{Key: "$set", Value: bson.D{{Key: "city",
		Value: "changed"}}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := coll.DeleteOne(t.Context(), bson.D{{Key: "_id", Value: "k2"}}); err != nil {
		t.Fatal(err)
	}
	require.NoError(t, projector.Rebuild(t.Context(), coll, "somebody has changed it"))
	if why := rebuilt(t, told); why != "somebody has changed it" {
		t.Errorf("it was rebuilt since %q", why)
	}
	wantCities(t, coll, want)
	wantNothingElse(t, client, coll)
	publishCustomer(t, client, "k3", `{"city":"after it","email":"k3@x"}`)
	want["k3"] = "after it"
	settled(t, client)
	wantCities(t, coll, want)
	_, err = coll.InsertOne(t.Context(), bson.D{{Key: "_id", Value: "twice"}, {Key: "email", Value: "k3@x"}})
	if !mongo.IsDuplicateKeyError(err) {
		t.Errorf("the unique index did not stay: %v", err)
	}
}

// A process that goes on late makes the group and the collection of a finished rebuild again, and
// these are removed. Collections of no rebuild, or of a future one, stay.
func TestLeftByEarlierRebuilds(t *testing.T) {
	t.Parallel()
	coll, _ := newCollection(t)
	client := dialURL(t, startSidecar(t, sluicetest.Options{}).URL)
	cfg := configOf(coll)
	told := tell(&cfg)
	startProjector(t, client, cfg)
	publishCustomer(t, client, "ann", `{"city":"Bern"}`)
	settled(t, client)
	again := func(suffix string) {
		join(t, client, projectedGroup+suffix)()
		if _, err := coll.Database().Collection(coll.Name()+suffix).InsertOne(t.Context(), bson.D{}); err != nil {
			t.Fatal(err)
		}
	}
	others := []string{".rebuild-01", ".rebuild-3", ".rebuild-x"}
	for _, other := range others {
		again(other)
	}
	for number := range 2 {
		require.NoError(t, projector.Rebuild(t.Context(), coll, "test"))
		rebuilt(t, told)
		again(fmt.Sprint(".rebuild-", number+1))
	}
	wantNothingElse(t, client, coll, others...)
	wantCities(t, coll, map[string]string{"ann": "Bern"})
}

// join makes a subscription of a group.
func join(t testing.TB, client *sluice.Client, group string, opts ...option.Subscribe) (leave func()) {
	t.Helper()
	sub, err := client.Subscribe(t.Context(), projectedTopic, group, func(context.Context, *sluice.Message) error { return nil }, opts...)
	require.NoError(t, err)
	return func() {
		sub.Drain()
		<-sub.Closed()
	}
}

// A topic that was deleted and made again has none of the events in the collection.
func TestTopicIsMadeAgain(t *testing.T) {
	t.Parallel()
	coll, _ := newCollection(t)
	client := dialURL(t, startSidecar(t, sluicetest.Options{}).URL)
	stop := startProjector(t, client, configOf(coll))
	publishCustomer(t, client, "ann", `{"city":"Bern"}`)
	publishCustomer(t, client, "bob", `{"city":"Chur"}`)
	settled(t, client)
	stop()
	await(t, func() error { return client.HTTP().DeleteTopic(t.Context(), projectedTopic) }) // in use until the sidecar has noticed
	publishCustomer(t, client, "ann", `{"city":"Genf"}`)
	cfg := configOf(coll)
	told := tell(&cfg)
	startProjector(t, client, cfg)
	if why := rebuilt(t, told); !strings.Contains(why, "deleted") {
		t.Errorf("it was rebuilt since %q", why)
	}
	wantCities(t, coll, map[string]string{"ann": "Genf"})
	wantNothingElse(t, client, coll)
}

// Another store has a topic of that name with lower seqs, or another number of partitions.
func TestAnotherHistory(t *testing.T) {
	for name, other := range map[string]string{"lower seqs": projectorPolicies, "other partitions": strings.Replace(projectorPolicies,
		"partitions: 4", "partitions: 1", 1)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			coll, _ := newCollection(t)
			client := dialURL(t, startSidecar(t, sluicetest.Options{}).URL)
			stop := startProjector(t, client, configOf(coll))
			for i := range 40 {
				publishCustomer(t, client, fmt.Sprint("k", i%10), `{"city":"Bern"}`)
			}
			settled(t, client)
			stop()

			client = dialURL(t, startSidecar(t, sluicetest.Options{Policies: other}).URL)
			cfg := configOf(coll)
			// The group is there, as where a backup was restored.
			join(t, client, projectedGroup, cfg.Subscribe...)()
			for i := range 20 {
				publishCustomer(t, client, fmt.Sprint("k", i%5), `{"city":"Chur"}`)
			}
			told := tell(&cfg)
			startProjector(t, client, cfg)
			t.Log(rebuilt(t, told))
			settled(t, client)
			wantCities(t, coll, map[string]string{"k0": "Chur", "k1": "Chur", "k2": "Chur", "k3": "Chur", "k4": "Chur"})
		})
	}
}

func TestAnotherProjectionOfTheCollection(t *testing.T) {
	t.Parallel()
	coll, _ := newCollection(t)
	client := dialURL(t, startSidecar(t, sluicetest.Options{}).URL)
	stop := startProjector(t, client, configOf(coll))
	publishCustomer(t, client, "ann", `{"city":"Bern"}`)
	settled(t, client)
	stop()
	cfg := configOf(coll)
	cfg.Group = "another"
	if err := projector.Run(t.Context(), client, cfg); err == nil || !strings.Contains(err.Error(),
		"by group view; topic customers and group another") {
		t.Errorf("another group: %v", err)
	}
}

// The processes that rebuild are killed with SIGKILL one after the other, while events come.
// Readers always find all customers.
func TestRebuildIsKilled(t *testing.T) {
	if url := os.Getenv(killSidecar); url != "" {
		rebuildUntilKilled(t, url)
		return
	}
	t.Parallel()
	coll, uri := newCollection(t)
	sidecar := startSidecar(t, sluicetest.Options{})
	client := dialURL(t, sidecar.URL)
	cfg := configOf(coll)
	stop := startProjector(t, client, cfg)
	want := map[string]string{}
	load := func(n int, city string) {
		for i := range n {
			key := fmt.Sprint("k", i%40)
			publishCustomer(t, client, key, fmt.Sprintf(`{"city":%q}`, city))
			want[key] = city
		}
	}
	load(400, "old")
	settled(t, client)
	again := func() { // unless one is under way
		require.NoError(t, projector.Rebuild(t.Context(), coll, "test"))
	}
	stop()
	for life := range 6 {
		again()
		process, out := startRebuilding(t, sidecar.URL, uri, coll, life*80)
		load(40, fmt.Sprint("life ", life))
		onTheWay(t, out)
		_ = process.Process.Kill()
		_ = process.Wait()
		if n := len(cities(t, coll)); n != 40 {
			t.Errorf("life %d: the collection has %d customers, want 40", life, n)
		}
	}
	again()
	told := tell(&cfg)
	startProjector(t, client, cfg)
	rebuilt(t, told)
	settled(t, client)
	if got := cities(t, coll); !maps.Equal(got, want) {
		t.Errorf("the collection has %v, want %v", got, want)
	}
	wantNothingElse(t, client, coll)
}

// The process that rebuilds stands still until another one has rebuilt, and then goes on.
func TestRebuildStandsStill(t *testing.T) {
	t.Parallel()
	coll, uri := newCollection(t)
	sidecar := startSidecar(t, sluicetest.Options{Policies: strings.Replace(projectorPolicies, "ack_timeout: 1s", "ack_timeout: 100ms", 1)})
	client := dialURL(t, sidecar.URL)
	cfg := configOf(coll)
	stop := startProjector(t, client, cfg)
	want := map[string]string{}
	for i := range 400 {
		key, city := fmt.Sprint("k", i%40), fmt.Sprint("city ", i)
		publishCustomer(t, client, key, fmt.Sprintf(`{"city":%q}`, city))
		want[key] = city
	}
	settled(t, client)
	require.NoError(t, projector.Rebuild(t.Context(), coll, "test"))
	stop()
	process, out := startRebuilding(t, sidecar.URL, uri, coll, 50)
	onTheWay(t, out)
	require.NoError(t, process.Process.Signal(syscall.SIGSTOP))
	// The stopped process may have done it before it stood still.
	require.NoError(t, projector.Rebuild(t.Context(), coll, "test"))
	told := tell(&cfg)
	startProjector(t, client, cfg)
	rebuilt(t, told)
	require.NoError(t, process.Process.Signal(syscall.SIGCONT))
	for i := range 40 {
		key, city := fmt.Sprint("k", i), fmt.Sprint("late city ", i)
		publishCustomer(t, client, key, fmt.Sprintf(`{"city":%q}`, city))
		want[key] = city
	}
	settled(t, client)
	wantCities(t, coll, want)
	await(t, func() error {
		names, err := coll.Database().ListCollectionNames(t.Context(), bson.D{})
		if err == nil && len(names) != 2 {
			err = fmt.Errorf("the database has %q", names)
		}
		return err
	})
	_ = process.Process.Kill()
	_ = process.Wait()
	settled(t, client)
	wantCities(t, coll, want)
	wantNothingElse(t, client, coll)
}

// startRebuilding starts a process that runs the projection, and says when its rebuild has read
// some events.
func startRebuilding(t *testing.T, sidecar, uri string, coll *mongo.Collection, after int) (process *exec.Cmd, out io.Reader) {
	t.Helper()
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestRebuildIsKilled$")
	child.Env = append(os.Environ(), killSidecar+"="+sidecar, killURI+"="+uri, killDatabase+"="+coll.Database().Name(),
		killAfter+"="+fmt.Sprint(after))
	child.Stderr = t.Output()
	out, err := child.StdoutPipe()
	if err == nil {
		err = child.Start()
	}
	require.NoError(t, err)
	return child, out
}

func onTheWay(t *testing.T, out io.Reader) {
	t.Helper()
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("the process said %q, %v", line, err)
	}
}

// killAfter says after how many events of the rebuild a process is killed.
const killAfter = "SLUICE_TEST_KILL_AFTER"

func rebuildUntilKilled(t *testing.T, url string) {
	time.AfterFunc(3*patience, func() { os.Exit(1) }) // the test has not killed it
	var most int64
	if _, err := fmt.Sscan(os.Getenv(killAfter), &most); err != nil {
		t.Fatal(err)
	}
	client, err := sluice.Dial(t.Context(), url)
	require.NoError(t, err)
	cfg := configOf(connectCustomers(t, os.Getenv(killURI), os.Getenv(killDatabase)))
	cfg.Batch = 10
	cfg.Observer.Rebuild = func(p projector.Progress) {
		if p.Done >= most || p.Ended {
			fmt.Println("on the way")
		}
	}
	t.Fatal(projector.Run(t.Context(), client, cfg))
}
