package mongolog

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
)

// server describes the MongoDB that answers.
type server struct {
	version string
	sharded bool // it is a mongos
}

// String is the server's name for people.
func (s server) String() string {
	if s.sharded {
		return "MongoDB " + s.version + ", sharded"
	}
	return "MongoDB " + s.version + ", replica set"
}

// UnsupportedError says why the log can never use this store.
type UnsupportedError struct{ reason string }

func (e *UnsupportedError) Error() string { return "the store cannot be used: " + e.reason }

// oneMember says how a server becomes a replica set.
const oneMember = `to make it a replica set of one, start mongod with --replSet rs0 (or replication.replSetName), and run once: mongosh --eval 'rs.initiate()'`

// detect asks the server for its version and type. A server that the log cannot use is an
// UnsupportedError.
func (l *Log) detect(ctx context.Context) (server, error) {
	var build struct {
		Version         string   `bson:"version"`
		FerretDB        bson.Raw `bson:"ferretdb"`
		FerretDBVersion string   `bson:"ferretdbVersion"`
	}
	if err := l.db.RunCommand(ctx, bson.D{{Key: "buildInfo", Value: 1}}).Decode(&build); err != nil {
		if refusal := l.topology.refusal(); refusal != nil {
			return server{}, refusal
		}
		return server{}, fmt.Errorf("buildInfo: %w", err)
	}
	var hello struct {
		SetName    string `bson:"setName"`
		Msg        string `bson:"msg"`
		ReplicaSet bool   `bson:"isreplicaset"` // it waits to be initiated
	}
	if err := l.db.RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&hello); err != nil {
		return server{}, fmt.Errorf("hello: %w", err)
	}
	s := server{version: build.Version, sharded: hello.Msg == "isdbgrid"}
	switch {
	case build.FerretDB != nil || build.FerretDBVersion != "":
		return s, &UnsupportedError{"it is FerretDB, which lacks capped collections and causally consistent sessions; Sluice needs MongoDB 4.4 or later"}
	case hello.SetName != "" || s.sharded:
		return s, nil
	case hello.ReplicaSet:
		return s, fmt.Errorf("its replica set is not initiated yet (mongosh --eval 'rs.initiate()')")
	}
	return s, &UnsupportedError{"it is MongoDB " + s.version + " on its own, and Sluice needs a replica set: " + oneMember}
}

// wireVersions are the versions of MongoDB that the driver does not talk to, by the wire version
// that they announce.
var wireVersions = map[int32]string{5: "3.4", 6: "3.6", 7: "4.0", 8: "4.2"}

// oldestWireVersion is that of MongoDB 4.4.
const oldestWireVersion = 9

// refusalOf says why the driver uses none of the servers that it has found; nil if it may.
func refusalOf(d event.TopologyDescription) error {
	for _, s := range d.Servers {
		if d.CompatibilityErr != nil && s.MaxWireVersion < oldestWireVersion && s.Kind != "Unknown" {
			return &UnsupportedError{fmt.Sprintf("%s is MongoDB %s, and Sluice needs 4.4 or later (%v)",
				s.Addr, wireVersions[s.MaxWireVersion], d.CompatibilityErr)}
		}
	}
	if d.CompatibilityErr != nil {
		return &UnsupportedError{d.CompatibilityErr.Error()}
	}
	if len(d.Servers) == 0 { // the driver drops servers that are in no set, or in another one
		return &UnsupportedError{"no server of its URL is a member of the replica set that the URL asks for; if one is on its own: " + oneMember}
	}
	return nil
}
