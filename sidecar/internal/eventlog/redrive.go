package eventlog

import "context"

// Redrive asks that a dead letter is delivered again to the group that failed
// it. It counts as long as the dead letter is in its topic, so one that comes
// late, or stays, asks for nothing.
type Redrive struct {
	// GroupPartition and Seq are the event's: where it was when it died.
	GroupPartition
	Seq uint64
	// Letter is the id of the dead letter's event in the dead letter topic.
	Letter string
}

// Redrives keeps the requests to redrive, and removes dead letters that are settled. A change that
// it returns nil for survives a power cut.
type Redrives interface {
	// AddRedrives adds entries of one topic; existing entries stay.
	AddRedrives(ctx context.Context, topic string, rs []Redrive) error

	// ListRedrives returns up to limit of a group, by partition, seq and letter;
	// with a partition of 0 or more, of that one alone.
	ListRedrives(ctx context.Context, topic, group string, partition, limit int) ([]Redrive, error)

	// HasRedrives tells for each whether it is there.
	HasRedrives(ctx context.Context, topic string, rs []Redrive) ([]bool, error)

	// EndRedrives takes some of one topic away; others are no error.
	EndRedrives(ctx context.Context, topic string, rs []Redrive) error

	// Remove removes events of the topic by their ids, as retention would: their
	// ids are remembered. Ids that the topic does not have are no error; removed
	// counts the others.
	Remove(ctx context.Context, topic string, ids []string, r Retention, now int64) (removed int, err error)

	// LookupEach finds events by id, in order; nil where Lookup would find none.
	LookupEach(ctx context.Context, topic string, ids []string) ([]*Record, error)
}

// RedriveProgress is how far a group has come with one redriven dead letter.
type RedriveProgress struct {
	Seq      uint64
	Letter   string
	Attempts int
	// Until is when it may be delivered again, in milliseconds since the epoch;
	// 0: at once. Left is as in Delay.
	Until, Left int64
	// Out and Unsure are as in Progress.
	Out, Unsure bool
	// Done says that it is settled: only the dead letter is left to remove.
	Done bool
}
