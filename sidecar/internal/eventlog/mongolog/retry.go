package mongolog

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/mongo"
)

// persist runs an operation that may be repeated, until its outcome is known, or the context ends,
// or another try would fail the same way. An upsert may fail because another sidecar has just
// inserted the document, so persist repeats it after a duplicate key, too.
func (l *Log) persist(ctx context.Context, do func() error) error {
	var wait backoff
	for {
		err := do()
		if err == nil || errors.Is(err, mongo.ErrNoDocuments) || isPermanent(err) || isBadDocument(err) {
			return err
		}
		if wait.sleep(ctx, l.opts.Clock, longWait) != nil {
			return err
		}
	}
}
