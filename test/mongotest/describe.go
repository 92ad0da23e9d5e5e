package mongotest

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// Feature is an ability that not every server has.
type Feature string

// The features that tests may need of a server.
const (
	Transactions Feature = "transactions"
	// Restarts are Stop, Kill and Restart.
	Restarts Feature = "stopping and restarting it"
)

var features = []Feature{Transactions, Restarts}

// Info describes a server.
type Info struct {
	Real       bool // the one of MONGODB_URI, not started by the tests
	Version    string
	ReplicaSet string // the replica set's name, if it is a member of one
	Sharded    bool   // a mongos
}

// Has tells whether the server can do it.
func (i Info) Has(f Feature) bool {
	switch f {
	case Transactions:
		return i.ReplicaSet != "" || i.Sharded
	case Restarts:
		return !i.Real
	}
	return false
}

// String names the server and the features that it lacks.
func (i Info) String() string {
	var s string
	switch {
	case i.Sharded:
		s = "MongoDB " + i.Version + ", sharded"
	case i.ReplicaSet != "":
		s = "MongoDB " + i.Version + ", replica set " + i.ReplicaSet
	default:
		s = "MongoDB " + i.Version + ", standalone"
	}
	var missing []string
	for _, f := range features {
		if !i.Has(f) {
			missing = append(missing, string(f))
		}
	}
	if len(missing) > 0 {
		s += "; left out: " + strings.Join(missing, ", ")
	}
	return s
}

// Info describes the server.
func (s *Server) Info() Info { return s.info }

// Describe says on which server the tests run and which tests are left out on it.
func (s *Server) Describe() string {
	how := "a process of their own"
	if s.Real() {
		how = "the server of " + URIVariable
	}
	return fmt.Sprintf("mongotest: the tests run on %s: %s", how, s.info)
}

// Needs skips a test on a server that lacks the feature, and says so on standard error, where
// skipping is seen.
func (s *Server) Needs(t testing.TB, f Feature) {
	t.Helper()
	if !s.info.Has(f) {
		fmt.Fprintf(os.Stderr, "mongotest: %s left out: no %s here\n", t.Name(), f)
		t.Skipf("the server has no %s", f)
	}
}

// described is the description of the process's first server. All others are like it.
var described struct {
	sync.Mutex
	done bool
	info Info
}

// inform asks the server for its description, the first time in a process, and then writes it to
// standard error.
func (s *Server) inform() error {
	described.Lock()
	defer described.Unlock()
	if described.done {
		s.info = described.info
		return nil
	}
	err := withClient(s.URI("admin"), func(ctx context.Context, c *mongo.Client) error {
		var err error
		s.info, err = ask(ctx, c.Database("admin"))
		s.info.Real = s.Real()
		return err
	})
	if err != nil {
		return fmt.Errorf("asking the MongoDB server for its version: %w", err)
	}
	described.done, described.info = true, s.info
	fmt.Fprintln(os.Stderr, s.Describe())
	return nil
}

func ask(ctx context.Context, admin *mongo.Database) (Info, error) {
	var build struct{ Version string }
	if err := admin.RunCommand(ctx, bson.D{{Key: "buildInfo", Value: 1}}).Decode(&build); err != nil {
		return Info{}, err
	}
	var hello struct {
		SetName string `bson:"setName"`
		Msg     string
	}
	if err := admin.RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&hello); err != nil {
		return Info{}, err
	}
	return Info{
		Version:    build.Version,
		ReplicaSet: hello.SetName,
		Sharded:    hello.Msg == "isdbgrid",
	}, nil
}
