package deadletter

import (
	"context"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/group/dispatch"
)

// Redrives reads the redrives of one group.
type Redrives struct {
	Log   Log
	Group eventlog.GroupName
	// Acked finds which of the ids the group acked before; nil: it does not remember.
	Acked func(ctx context.Context, ids []string) (map[string]bool, error)
}

// Read is the read of one partition's redrives.
type Read struct {
	Partition int
	Known     map[string]bool // the letters that are not asked for

	Redrives []eventlog.Redrive
	More     bool // there may be others
}

// Found is what Redrives reads about letters.
type Found struct {
	Events  map[string]*eventlog.Record // of the letters that exist, but for known ones
	Settled map[string]bool
}

// Read reads the redrives of partitions. Its first query usually finds none. Redrives whose dead
// letters do not exist are ended.
func (r *Redrives) Read(ctx context.Context, reads []*Read) (f Found, err error) {
	const most = 2 * dispatch.RedrivesAhead
	topic := r.Group.Topic
	all, err := r.Log.ListRedrives(ctx, topic, r.Group.Group, -1, most)
	if err != nil {
		return f, err
	}
	var letters []string
	for _, p := range reads {
		list := all
		if len(all) == most {
			if list, err = r.Log.ListRedrives(ctx, topic, r.Group.Group, p.Partition, most); err != nil {
				return f, err
			}
			p.More = len(list) == most
		}
		var more bool
		p.Redrives, more = firstOfEach(list, p.Partition)
		p.More = p.More || more
		for _, x := range p.Redrives {
			if !p.Known[x.Letter] {
				letters = append(letters, x.Letter)
			}
		}
	}
	if f.Events, err = Events(ctx, r.Log, topic, letters); err != nil {
		return f, err
	}
	if f.Settled, err = r.settled(ctx, f.Events); err != nil {
		return f, err
	}
	var void []eventlog.Redrive
	for _, p := range reads {
		for _, x := range p.Redrives {
			if !p.Known[x.Letter] && f.Events[x.Letter] == nil {
				void = append(void, x)
			}
		}
	}
	if len(void) > 0 {
		err = r.Log.EndRedrives(ctx, topic, void)
	}
	return f, err
}

// settled finds the settled letters: an earlier owner appended the next dead letter but died before
// it saved that, or the group acked the event.
func (r *Redrives) settled(ctx context.Context, events map[string]*eventlog.Record) (map[string]bool, error) {
	var letters, next, ids []string
	for letter, rec := range events {
		letters, next, ids = append(letters, letter), append(next, eventlog.NextLetter(letter)), append(ids, rec.ID)
	}
	again, err := Find(ctx, r.Log, r.Group.Topic, next)
	if err != nil {
		return nil, err
	}
	var acked map[string]bool
	if r.Acked != nil {
		if acked, err = r.Acked(ctx, ids); err != nil {
			return nil, err
		}
	}
	settled := map[string]bool{}
	for i, letter := range letters {
		settled[letter] = again[i] != nil || acked[ids[i]]
	}
	return settled, nil
}

// firstOfEach are the redrives of a partition. If there are two of one dead letter, it returns the
// earlier one, which is about to be removed, and more.
func firstOfEach(all []eventlog.Redrive, partition int) (rs []eventlog.Redrive, more bool) {
	for _, r := range all {
		n := len(rs)
		switch {
		case r.Partition != partition:
		case n > 0 && rs[n-1].Seq == r.Seq && eventlog.StableLetterID(rs[n-1].Letter) == eventlog.StableLetterID(r.Letter):
			more = true
			if eventlog.Deaths(r.Letter) < eventlog.Deaths(rs[n-1].Letter) {
				rs[n-1] = r
			}
		default:
			rs = append(rs, r)
		}
	}
	return rs, more
}
