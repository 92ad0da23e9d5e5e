package manage

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/group/deadletter"
	"github.com/sluice-bus/sluice/sidecar/internal/session"
)

type topicList struct {
	Topics []*topicInfo `json:"topics"`
	Next   string       `json:"next,omitempty"`
}

// topicInfo is a topic in the answer to GET /v1/topics.
type topicInfo struct {
	Topic      string          `json:"topic"`
	Partitions []partitionInfo `json:"partitions"`
	holding
	Groups []string `json:"groups"`
}

// partitionInfo is the content of a partition: the seqs from First to Head, and nothing if First is
// above Head.
type partitionInfo struct {
	Partition int    `json:"partition"`
	First     uint64 `json:"first"`
	Head      uint64 `json:"head"`
}

// holding is the content of a topic, see eventlog.HoldingOf and eventlog.Reader.Holdings.
type holding struct {
	Events  int64  `json:"events"`
	Bytes   int64  `json:"bytes"`
	FirstTS *int64 `json:"first_ts,omitempty"`
	LastTS  *int64 `json:"last_ts,omitempty"`
}

func (m *handlers) listTopics(caller *session.Session, _ http.ResponseWriter, r *httpapi.Request) (any, error) {
	prefix := r.Text("prefix")
	limit, after, err := limitAndCursor(r)
	if err != nil {
		return nil, err
	}
	if after != "" && codec.CheckReadTopic(after) != nil {
		return nil, errCursor()
	}
	topics, err := m.Log.Topics(r.Context())
	if err != nil {
		return nil, err
	}
	var names []string
	for _, tp := range topics {
		if tp.Name > after && strings.HasPrefix(tp.Name, prefix) && sees(caller, tp.Name) {
			names = append(names, tp.Name)
		}
	}
	held := caller.Hold()
	defer held.Free()
	if err := held.TryTake(min(len(names), eventlog.AtOnce) * eventlog.Sample.Bytes); err != nil {
		return nil, err
	}
	l := topicList{Topics: []*topicInfo{}}
	for len(names) > 0 && len(l.Topics) < limit { // more than once if topics are deleted meanwhile
		n := min(len(names), limit-len(l.Topics))
		infos, err := m.topicInfos(r.Context(), caller, names[:n])
		if err != nil {
			return nil, err
		}
		l.Topics, names = append(l.Topics, infos...), names[n:]
	}
	if len(names) > 0 {
		l.Next = nextCursor(l.Topics[limit-1].Topic)
	}
	return l, nil
}

// sees reports whether the caller has any right to a topic.
func sees(caller *session.Session, topic string) bool {
	rights := []access.Action{access.Publish, access.Subscribe, access.Replay, access.Admin}
	return slices.ContainsFunc(rights, func(right access.Action) bool { return caller.May(right, topic, "") == nil })
}

// topicInfos describes those of the topics that still exist.
func (m *handlers) topicInfos(ctx context.Context, caller *session.Session, names []string) ([]*topicInfo, error) {
	holdings, err := m.Log.Holdings(ctx, names)
	if err != nil {
		return nil, err
	}
	groups, err := m.Groups.GroupsOf(ctx, names)
	if err != nil {
		return nil, err
	}
	infos := make([]*topicInfo, len(holdings))
	for i, h := range holdings {
		infos[i] = newTopicInfo(h, joinable(caller, h.Topic, groups[h.Topic]))
	}
	return infos, nil
}

func newTopicInfo(h eventlog.Holding, groups []string) *topicInfo {
	info := &topicInfo{
		Topic: h.Topic, Partitions: make([]partitionInfo, len(h.Extents)), Groups: append([]string{}, groups...), // an array, not null
		holding: holding{Events: h.Events, Bytes: h.Bytes},
	}
	for i, e := range h.Extents {
		info.Partitions[i] = partitionInfo{Partition: i, First: e.First, Head: e.Head}
	}
	if h.Events > 0 {
		info.FirstTS, info.LastTS = &h.FirstTS, &h.LastTS
	}
	return info
}

// showTopic describes one topic.
func (m *handlers) showTopic(caller *session.Session, _ http.ResponseWriter, r *httpapi.Request) (any, error) {
	topic := r.PathValue("topic")
	if bad := codec.CheckReadTopic(topic); bad != nil {
		return nil, bad
	}
	if !sees(caller, topic) {
		return nil, caller.MayRead(topic)
	}
	held := caller.Hold()
	defer held.Free()
	if err := held.TryTake(eventlog.Sample.Bytes); err != nil {
		return nil, err
	}
	info, err := m.topicInfo(r.Context(), topic)
	if err != nil {
		return nil, err
	}
	info.Groups = joinable(caller, topic, info.Groups)
	return info, nil
}

// topicInfo describes a topic and all of its groups.
func (m *handlers) topicInfo(ctx context.Context, name string) (*topicInfo, error) {
	h, err := eventlog.HoldingOf(ctx, m.Log, name)
	if err != nil {
		return nil, err
	}
	groups, err := m.Groups.Groups(ctx, name)
	return newTopicInfo(h, groups), err
}

// makeTopic creates a topic, even if publishing does not create topics.
func (m *handlers) makeTopic(caller *session.Session, w http.ResponseWriter, r *httpapi.Request) error {
	topic := r.PathValue("topic")
	if err := m.mayMake(caller, r, topic); err != nil {
		return err
	}
	tp, made, err := m.ensureTopic(caller.Attribute(r.Context()), topic)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if made {
		status = http.StatusCreated
		m.Logger.Info("a topic was made", "topic", topic, "by", caller.Identity().Name)
	}
	return httpapi.WriteValue(w, status, madeTopic{topic, tp.Partitions})
}

type madeTopic struct {
	Topic      string `json:"topic"`
	Partitions int    `json:"partitions"`
}

// mayMake returns an error unless the sender may create a topic: with the right admin, or with
// publish if publishing creates it.
func (m *handlers) mayMake(caller *session.Session, r *httpapi.Request, topic string) error {
	if bad := codec.CheckTopic(topic); bad != nil {
		return bad
	}
	if m.Policies.Load().Topic(topic).AutoCreate && caller.May(access.Publish, topic, "") == nil {
		return nil
	}
	return caller.May(access.Admin, topic, "")
}

func (m *handlers) ensureTopic(ctx context.Context, topic string) (tp eventlog.Topic, made bool, err error) {
	if tp, err = m.Log.LookupTopic(ctx, topic); !errors.Is(err, eventlog.ErrNotFound) {
		return tp, false, err
	}
	if err = m.Topics.Room(ctx); err != nil {
		return tp, false, err
	}
	tp, err = m.Log.EnsureTopic(ctx, topic, m.Policies.Load().Topic(topic).Partitions)
	return tp, true, err
}

// deleteTopic removes a topic, its groups and its dead letters, or reports what would be removed.
func (m *handlers) deleteTopic(caller *session.Session, _ http.ResponseWriter, r *httpapi.Request) (any, error) {
	topic := r.PathValue("topic")
	if err := caller.May(access.Admin, topic, ""); err != nil {
		return nil, err
	}
	held := caller.Hold()
	defer held.Free()
	if r.DryRun() {
		return m.planDeletion(r.Context(), held, topic)
	}
	m.LeavePulls(topic, "")
	if err := m.removeTopic(r.Context(), held, topic); err != nil {
		return nil, err
	}
	m.Logger.Info("a topic was deleted", "topic", topic, "by", caller.Identity().Name)
	return nil, nil
}

// deletionPlan counts the data that is removed with a topic.
type deletionPlan struct {
	Events      int64    `json:"events"`
	Bytes       int64    `json:"bytes"`
	Groups      []string `json:"groups"`
	DeadLetters int64    `json:"dead_letters"`
	Scheduled   int64    `json:"scheduled"`
}

func (m *handlers) planDeletion(ctx context.Context, held *budget.Held, topic string) (deletionPlan, error) {
	info, err := m.topicInfo(ctx, topic)
	if err != nil {
		return deletionPlan{}, err
	}
	plan := deletionPlan{Events: info.Events, Bytes: info.Bytes, Groups: info.Groups}
	err = m.eachDeadElsewhere(ctx, held, topic, func(dead []eventlog.Dead) error {
		plan.DeadLetters += int64(len(dead))
		return nil
	})
	if err != nil {
		return deletionPlan{}, err
	}
	parts, err := m.withLetters(ctx, topic)
	if err != nil {
		return deletionPlan{}, err
	}
	for _, name := range parts[:len(parts)-1] {
		switch letters, err := m.topicInfo(ctx, name); {
		case err == nil:
			plan.DeadLetters += letters.Events
		case !errors.Is(err, eventlog.ErrNotFound):
			return deletionPlan{}, err
		}
	}
	waiting, err := m.Log.CountScheduled(ctx, topic)
	plan.Scheduled = waiting.Events
	return plan, err
}

// eachDeadElsewhere visits pages of the dead letters of a topic that are not in its own topic of them.
func (m *handlers) eachDeadElsewhere(
	ctx context.Context, held *budget.Held, topic string, visit func([]eventlog.Dead) error,
) error {
	topics, err := m.Log.DeadLetterTopics(ctx, topic)
	if err != nil {
		return err
	}
	q := deadLetters{topic: topic, in: topics[1:], sees: func(string) bool { return true }, held: held}
	return m.eachDead(ctx, q, func(dead []eventlog.Dead) (bool, error) { return true, visit(dead) })
}

// removeElsewhere removes the dead letters of a topic from topics that have others, too.
func (m *handlers) removeElsewhere(ctx context.Context, held *budget.Held, topic string) error {
	return m.eachDeadElsewhere(ctx, held, topic, func(dead []eventlog.Dead) error {
		letters := make([]string, len(dead))
		for i := range dead {
			letters[i] = dead[i].Letter.ID
		}
		return deadletter.Remove(ctx, m.Log, topic, letters, m.retained, time.Now())
	})
}

// withLetters are a topic and those of its dead letters, of their dead letters and so on, the topic last. The first of them need not
// exist.
func (m *handlers) withLetters(ctx context.Context, topic string) ([]string, error) {
	parts := []string{topic}
	for name := topic + wire.DeadLetterSuffix; len(name) <= wire.MaxTopicBytes; name += wire.DeadLetterSuffix {
		_, err := m.Log.LookupTopic(ctx, name)
		if errors.Is(err, eventlog.ErrNotFound) && len(parts) > 1 {
			break
		}
		if err != nil && !errors.Is(err, eventlog.ErrNotFound) {
			return nil, err
		}
		parts = slices.Insert(parts, 0, name)
	}
	return parts, nil
}

// removeTopic removes a topic after its dead letters. So if it stops half-way, the topic still
// exists and can be deleted again.
func (m *handlers) removeTopic(ctx context.Context, held *budget.Held, topic string) error {
	parts, err := m.withLetters(ctx, topic)
	if err != nil {
		return err
	}
	groups := make([][]string, len(parts))
	for i, name := range parts {
		_, err := m.Log.LookupTopic(ctx, name)
		if errors.Is(err, eventlog.ErrNotFound) {
			continue // or an earlier deletion stopped after the last group
		}
		if err == nil {
			err = m.Groups.Unused(ctx, name)
		}
		if err == nil {
			groups[i], err = m.Groups.Groups(ctx, name)
		}
		if err != nil {
			return err
		}
	}
	if err := m.removeElsewhere(ctx, held, topic); err != nil {
		return err
	}
	for i, name := range parts {
		for _, group := range groups[i] {
			if err := m.Groups.Delete(ctx, name, group); err != nil && !errors.Is(err, eventlog.ErrNotFound) {
				return err
			}
		}
		err := m.Log.DeleteTopic(ctx, name)
		if err != nil && (name == topic || !errors.Is(err, eventlog.ErrNotFound)) {
			return err
		}
	}
	return nil
}
