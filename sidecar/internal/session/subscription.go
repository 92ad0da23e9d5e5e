package session

import (
	"context"

	"github.com/sluice-bus/sluice/sidecar/internal/follower"
	"github.com/sluice-bus/sluice/sidecar/internal/group"
	"github.com/sluice-bus/sluice/sidecar/internal/refusal"
)

// SubscriptionKey names a subscription; Group is "" without one.
type SubscriptionKey struct{ Topic, Group string }

func (k SubscriptionKey) String() string {
	if k.Group == "" {
		return "topic " + refusal.Shorten(k.Topic) + " without a group"
	}
	return "topic " + refusal.Shorten(k.Topic) + " with group " + refusal.Shorten(k.Group)
}

// Feed delivers events to a subscription, with or without a group.
type Feed interface {
	Start()
	Wake()
	Pause()
	Resume()
	Close(how group.Leaving)
}

// lone is the feed of a subscription without a group.
type lone struct{ *follower.Follower }

// Close ends the subscription; it has no events to give back.
func (l lone) Close(group.Leaving) { l.Follower.Close() }

// Join subscribes: as a member of a group, or without one from the seq of each partition in starts.
func Join(ctx context.Context, groups *group.Manager, asked group.Subscription) (f Feed, member *group.Member, starts []uint64, err error) {
	if asked.Group == "" {
		follower, err := groups.Follow(ctx, asked)
		if err != nil {
			return nil, nil, nil, err
		}
		return lone{follower}, nil, follower.Starts(), nil
	}
	member, err = groups.Subscribe(ctx, asked)
	if err != nil {
		return nil, nil, nil, err
	}
	return member, member, nil, nil
}
