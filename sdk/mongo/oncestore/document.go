package oncestore

import (
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-bus/sluice/sdk/exactlyonce"
)

type document struct {
	ID       string    `bson:"_id"`
	Chain    string    `bson:"chain"`
	Number   int64     `bson:"n"`
	Kind     string    `bson:"kind"`
	Owner    string    `bson:"owner"`
	LeaseMS  int64     `bson:"lease_ms,omitempty"`
	Beat     int64     `bson:"beat,omitempty"`
	Released bool      `bson:"released,omitempty"`
	Head     int64     `bson:"head,omitempty"`
	ExpireAt time.Time `bson:"expireAt"`
}

// documentID is unique: no part of it has spaces.
func documentID(s exactlyonce.Slot) string {
	if s.Number == 1 {
		return s.Key
	}
	return s.Key + " " + s.Chain + " " + strconv.FormatInt(s.Number, 10)
}

func byID(s exactlyonce.Slot) bson.D { return bson.D{{Key: "_id", Value: documentID(s)}} }

// encode rounds the lease up: other processes must wait at least as long as the owner counts.
func encode(r exactlyonce.Record) document {
	return document{
		ID: documentID(r.Slot), Chain: r.Chain, Number: r.Number, Kind: string(r.Kind), Owner: r.Owner,
		LeaseMS: int64((r.Lease + time.Millisecond - 1) / time.Millisecond),
		Beat:    r.Beat, Released: r.Released, Head: r.Head, ExpireAt: r.ExpireAt,
	}
}

func (d document) record(key string) exactlyonce.Record {
	return exactlyonce.Record{
		Slot: exactlyonce.Slot{Key: key, Chain: d.Chain, Number: d.Number},
		Kind: exactlyonce.Kind(d.Kind), Owner: d.Owner, Lease: time.Duration(d.LeaseMS) * time.Millisecond,
		Beat: d.Beat, Released: d.Released, Head: d.Head, ExpireAt: d.ExpireAt,
	}
}
