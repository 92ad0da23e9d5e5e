package capture

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-bus/sluice/internal/atomicfile"
)

// Places is the collection where places are kept in the database of a shared log.
const Places = "captures"

// PlacesFile is the file with the places, in the data folder of a sidecar whose log is there too.
const PlacesFile = "captures.json"

// place is how far a capture has come. The zero value stands for one that has never begun.
type place struct {
	Name  string    `bson:"_id" json:"-"`
	Rev   int64     `bson:"rev" json:"rev"`                         // rises with every save
	Token bson.Raw  `bson:"token,omitempty" json:"token"`           // everything before it is in the log; nil before the first session
	At    time.Time `bson:"at" json:"at"`                           // the time of the token, about
	Again bool      `bson:"again,omitempty" json:"again,omitempty"` // a re-read is asked for, and has yet to begin
	// Reading has the _id of the last document that a re-read has published, and is empty before
	// the first; nil: no re-read is under way.
	Reading bson.Raw `bson:"reading,omitempty" json:"reading,omitempty"`
}

var emptyDocument = bson.Raw{5, 0, 0, 0, 0}

// errTaken says that another sidecar has saved the place meanwhile.
var errTaken = errors.New("another sidecar has saved the place")

// places keeps places by the captures' names.
type places interface {
	load(ctx context.Context, name string) (place, error)
	// save replaces the place whose Rev is one less. The error is errTaken if the stored place has
	// another Rev; after any other error the save may have been executed, and may still be.
	save(ctx context.Context, name string, p place) error
}

// mongoPlaces keeps each place in a document.
type mongoPlaces struct{ coll *mongo.Collection }

func (m mongoPlaces) load(ctx context.Context, name string) (p place, _ error) {
	err := m.coll.FindOne(ctx, bson.D{{Key: "_id", Value: name}}).Decode(&p)
	if errors.Is(err, mongo.ErrNoDocuments) {
		return place{}, nil
	}
	return p, err
}

func (m mongoPlaces) save(ctx context.Context, name string, p place) error {
	if p.Name = name; p.Rev == 1 {
		_, err := m.coll.InsertOne(ctx, p)
		if mongo.IsDuplicateKeyError(err) {
			return errTaken
		}
		return err
	}
	done, err := m.coll.ReplaceOne(ctx, bson.D{{Key: "_id", Value: name}, {Key: "rev", Value: p.Rev - 1}}, p)
	if err == nil && done.MatchedCount == 0 {
		return errTaken
	}
	return err
}

// filePlaces keeps the places of one sidecar in a file: a JSON object, by name.
type filePlaces struct{ path string }

// fileMu guards the file, which captures share.
var fileMu sync.Mutex

func (f filePlaces) all() (map[string]place, error) {
	all := map[string]place{}
	content, err := os.ReadFile(f.path)
	if errors.Is(err, os.ErrNotExist) {
		return all, nil
	}
	if err == nil {
		err = json.Unmarshal(content, &all)
	}
	if err != nil {
		return nil, fmt.Errorf("the place cannot be read: %s: %w", f.path, err)
	}
	return all, nil
}

func (f filePlaces) load(_ context.Context, name string) (place, error) {
	fileMu.Lock()
	defer fileMu.Unlock()
	all, err := f.all()
	return all[name], err
}

func (f filePlaces) save(_ context.Context, name string, p place) error {
	fileMu.Lock()
	defer fileMu.Unlock()
	all, err := f.all()
	if err != nil {
		return err
	}
	if all[name].Rev != p.Rev-1 {
		return errTaken
	}
	all[name] = p
	content, err := json.Marshal(all)
	if err != nil {
		return err
	}
	return atomicfile.Write(f.path, append(content, '\n'))
}
