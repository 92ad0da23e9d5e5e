package setup

import (
	"cmp"
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
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

// detect asks the server for its version and type. A server that the log cannot use is an
// UnsupportedError.
func (su *Setup) detect(ctx context.Context) (server, error) {
	var build struct {
		Version         string   `bson:"version"`
		FerretDB        bson.Raw `bson:"ferretdb"`
		FerretDBVersion string   `bson:"ferretdbVersion"`
	}
	if err := su.store.Run(ctx, "buildInfo", &build); err != nil {
		return server{}, cmp.Or(su.store.Refusal(), err)
	}
	var hello struct {
		SetName    string `bson:"setName"`
		Msg        string `bson:"msg"`
		ReplicaSet bool   `bson:"isreplicaset"` // it waits to be initiated
	}
	if err := su.store.Run(ctx, "hello", &hello); err != nil {
		return server{}, err
	}
	s := server{version: build.Version, sharded: hello.Msg == "isdbgrid"}
	switch {
	case build.FerretDB != nil || build.FerretDBVersion != "":
		return s, &core.UnsupportedError{Reason: "it is FerretDB, which lacks capped collections and causally consistent sessions; " +
			"Sluice needs MongoDB 4.4 or later"}
	case hello.SetName != "" || s.sharded:
		return s, nil
	case hello.ReplicaSet:
		return s, errors.New("its replica set is not initiated yet (mongosh --eval 'rs.initiate()')")
	}
	return s, &core.UnsupportedError{Reason: "it is MongoDB " + s.version + " on its own, and Sluice needs a replica set: " + core.OneMember}
}
