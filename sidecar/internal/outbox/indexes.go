package outbox

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// MongoDB's error codes.
const (
	codeUnauthorized          = 13
	codeNamespaceNotFound     = 26
	codeNotPrimary            = 10107
	codeNotPrimaryNoSecondary = 13435
	codeInterrupted           = 11602
	codeIndexOptionsConflict  = 85
	codeIndexKeySpecsConflict = 86
)

// maxIndexOnStart bounds the size of an outbox for which a drainer builds an index. The server
// aborts an index build when the caller's time is over, so a larger build would never finish.
const maxIndexOnStart = 200_000

// indexKeys are the keys of the index that a drainer reads by.
var indexKeys = bson.D{{Key: fieldStatus, Value: 1}, {Key: fieldTS, Value: 1}, {Key: fieldID, Value: 1}}

// createIndex creates the index if it is missing, unless the outbox has more than most documents. An
// index with the same keys and another name serves as well. If the server refuses the index, the
// drainer logs a warning and works without it.
func (d *Drainer) createIndex(ctx context.Context, most int64) error {
	ctx, cancel := d.cfg.Clock.WithTimeout(ctx, operationTimeout)
	defer cancel()
	there, err := d.indexes(ctx)
	if err != nil || there[keysText(indexKeys)] {
		return err
	}
	n, err := d.outbox.EstimatedDocumentCount(ctx)
	if err != nil {
		return err
	}
	if n > most {
		d.cfg.Logger.Warn("the outbox has no index and too many documents to create one now: every look reads the whole "+
			"collection until the index is created", "keys", keysText(indexKeys), "documents", n)
		return nil
	}
	_, err = d.outbox.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: indexKeys})
	var server mongo.ServerError
	switch {
	case !errors.As(err, &server):
		return err
	case server.HasErrorCode(codeIndexOptionsConflict), server.HasErrorCode(codeIndexKeySpecsConflict):
		return nil
	case server.HasErrorCode(codeUnauthorized):
		d.cfg.Logger.Warn("an index of the outbox cannot be created: without it every look reads the whole collection",
			"keys", keysText(indexKeys), "error", err)
		return nil
	}
	return err
}

// indexes returns the keys of the existing indexes; none for a user who may not list them.
func (d *Drainer) indexes(ctx context.Context) (map[string]bool, error) {
	var list []struct{ Key bson.D }
	cursor, err := d.outbox.Indexes().List(ctx)
	if err == nil {
		err = cursor.All(ctx, &list)
	}
	var server mongo.ServerError
	if errors.As(err, &server) && (server.HasErrorCode(codeUnauthorized) || server.HasErrorCode(codeNamespaceNotFound)) {
		err = nil
	}
	there := map[string]bool{}
	for _, index := range list {
		there[keysText(index.Key)] = true
	}
	return there, err
}

// keysText is the text of an index's keys. It is also right for an index that the shell has made,
// whose keys are doubles.
func keysText(keys bson.D) string {
	var text []string
	for _, k := range keys {
		text = append(text, fmt.Sprint(k.Key, ":", k.Value))
	}
	return strings.Join(text, ",")
}
