package setup

import (
	"cmp"
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
)

// detect asks the server what it is. A server that the log cannot use is an UnsupportedError.
func (su *Setup) detect(ctx context.Context) (sharded bool, _ error) {
	var build struct {
		Version         string   `bson:"version"`
		FerretDB        bson.Raw `bson:"ferretdb"`
		FerretDBVersion string   `bson:"ferretdbVersion"`
	}
	if err := su.store.Run(ctx, "buildInfo", &build); err != nil {
		return false, cmp.Or(su.store.Refusal(), err)
	}
	var hello struct {
		SetName    string `bson:"setName"`
		Msg        string `bson:"msg"`
		ReplicaSet bool   `bson:"isreplicaset"` // it waits to be initiated
	}
	if err := su.store.Run(ctx, "hello", &hello); err != nil {
		return false, err
	}
	sharded = hello.Msg == "isdbgrid" // it is a mongos
	switch {
	case build.FerretDB != nil || build.FerretDBVersion != "":
		return false, &core.UnsupportedError{Reason: "it is FerretDB, which lacks capped collections and causally consistent sessions; " +
			"Sluice needs MongoDB 4.4 or later"}
	case hello.SetName != "" || sharded:
		return sharded, nil
	case hello.ReplicaSet:
		return false, errors.New("its replica set is not initiated yet (mongosh --eval 'rs.initiate()')")
	}
	return false, &core.UnsupportedError{
		Reason: "it is MongoDB " + build.Version + " on its own, and Sluice needs a replica set: " + core.OneMember,
	}
}
