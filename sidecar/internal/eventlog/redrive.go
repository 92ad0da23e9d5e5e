package eventlog

import "context"

// Redrive is a request to deliver a dead letter again to the group that failed it. It has an effect
// only while the dead letter is in its topic, so a late or remaining request is harmless.
type Redrive struct {
	// GroupPartition and Seq are the place of the event when it died.
	GroupPartition
	Seq uint64
	// Letter is the event id of the dead letter in the dead letter topic.
	Letter string
}

// Redrives keeps redrive requests, and where dead letters are, and removes settled dead letters. A change survives a power cut
// once the call returns nil.
type Redrives interface {
	// AddRedrives adds entries of one topic. Existing entries stay.
	AddRedrives(ctx context.Context, topic string, rs []Redrive) error

	// ListRedrives returns up to limit entries of a group, by partition, seq and letter; with a
	// partition ≥ 0, of that partition only.
	ListRedrives(ctx context.Context, topic, group string, partition, limit int) ([]Redrive, error)

	// HasRedrives reports for each entry whether it exists.
	HasRedrives(ctx context.Context, topic string, rs []Redrive) ([]bool, error)

	// EndRedrives removes entries of one topic. Missing entries are no error.
	EndRedrives(ctx context.Context, topic string, rs []Redrive) error

	// Remove removes events of the topic by their ids and remembers the ids, as retention does. Ids
	// that the topic does not have are no error; removed counts the others.
	Remove(ctx context.Context, topic string, ids []string, r Retention, now int64) (removed int, err error)

	// AddDeadLetterTopic notes that dead letters of an existing topic may be in another topic than its own of them, until
	// the first one is deleted. It may be noted already. The caller bounds their number.
	AddDeadLetterTopic(ctx context.Context, topic, letters string) error

	// DeadLetterTopics returns the topics that may have dead letters of the topic: its own, whether or not it exists, and
	// then those that were noted, by name.
	DeadLetterTopics(ctx context.Context, topic string) ([]string, error)

	// NamedDeadLetterTopics returns all topics that were noted, of whichever topic, by name.
	NamedDeadLetterTopics(ctx context.Context) ([]string, error)

	// LookupEach finds events by id, in order; nil for an id that Lookup would not find.
	LookupEach(ctx context.Context, topic string, ids []string) ([]*Record, error)
}

// RedriveProgress is a group's progress with one redriven dead letter.
type RedriveProgress struct {
	Seq      uint64
	Letter   string
	Attempts int
	// Until and Left are as in Delay; an Until of 0: it may be delivered at once.
	Until, Left int64
	// Out and Unsure are as in Progress.
	Out, Unsure bool
	// Done says that it is settled, and that only the dead letter has to be removed.
	Done bool
}
