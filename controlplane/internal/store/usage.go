package store

import "context"

// Usage keeps what control planes have counted, by day. It is safe for concurrent use.
type Usage interface {
	// PutUsage replaces the document of a writer's day, unless that has a higher number already: a request may be
	// carried out long after its sender has given up.
	PutUsage(ctx context.Context, d UsageDoc) error
	// UsageBetween returns the documents of days, both included, of all writers, ascending by Day and Writer.
	UsageBetween(ctx context.Context, from, to string) ([]UsageDoc, error)
	// ForgetUsage removes the documents of the days before one.
	ForgetUsage(ctx context.Context, day string) error
}

// UsageDoc is what one writer has counted on one day.
type UsageDoc struct {
	Day    string // 2006-01-02
	Writer string // without a line feed
	Number int64  // rises with every PutUsage of the writer
	Doc    []byte // at most MaxCommitBytes
}

// Key sorts documents by day.
func (d UsageDoc) Key() string { return d.Day + "\n" + d.Writer }
