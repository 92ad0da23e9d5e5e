package mongostore

import (
	"encoding/json"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-bus/sluice/controlplane/internal/store"
)

type commitDoc struct {
	Revision int64       `bson:"_id"`
	Format   int         `bson:"format"`
	At       time.Time   `bson:"at"`
	By       string      `bson:"by"`
	Reason   string      `bson:"reason,omitempty"`
	Token    string      `bson:"token"`
	Changes  []changeDoc `bson:"changes"`
	Series   int64       `bson:"series,omitempty"`
}

type changeDoc struct {
	Name    string `bson:"name"`
	Version int64  `bson:"version"`
	Action  string `bson:"action"`
	Policy  string `bson:"policy,omitempty"`
	Schema  int64  `bson:"schema,omitempty"`
	To      int64  `bson:"to,omitempty"`

	Forgotten bool `bson:"forgotten,omitempty"`
}

// encode encodes a commit, and refuses one that is too large.
func encode(c store.Commit) (bson.Raw, error) {
	doc := commitDoc{Revision: c.Revision, Format: store.Format, At: c.At, By: c.By, Reason: c.Reason, Token: c.Token, Series: c.Series,
		Changes: make([]changeDoc, len(c.Changes))}
	for i, ch := range c.Changes {
		doc.Changes[i] = changeDoc{ch.Name, ch.Version, string(ch.Action), string(ch.Policy), ch.Schema, ch.To, ch.Forgotten}
	}
	raw, err := bson.Marshal(doc)
	if err != nil {
		return nil, fmt.Errorf("commit %d: %w", c.Revision, err)
	}
	if len(raw) > store.MaxCommitBytes {
		return nil, store.ErrTooLarge
	}
	return raw, nil
}

func decode(raw bson.Raw) (store.Commit, error) {
	var doc commitDoc
	if err := bson.Unmarshal(raw, &doc); err != nil {
		return store.Commit{}, fmt.Errorf("a document of %s: %w", commitsName, err)
	}
	if err := store.CheckFormat(doc.Format); err != nil {
		return store.Commit{}, fmt.Errorf("commit %d: %w", doc.Revision, err)
	}
	c := store.Commit{Revision: doc.Revision, At: doc.At.UTC(), By: doc.By, Reason: doc.Reason, Token: doc.Token, Series: doc.Series,
		Changes: make([]store.Change, len(doc.Changes))}
	for i, ch := range doc.Changes {
		c.Changes[i] = store.Change{Name: ch.Name, Version: ch.Version, Action: store.Action(ch.Action), Schema: ch.Schema, To: ch.To,
			Forgotten: ch.Forgotten}
		if ch.Policy != "" {
			c.Changes[i].Policy = json.RawMessage(ch.Policy)
		}
	}
	return c, nil
}
