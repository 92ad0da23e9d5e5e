package manage

import (
	"net/http"
	"slices"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/session"
)

type groupList struct {
	Groups []string `json:"groups"`
}

func (m *handlers) listGroups(caller *session.Session, _ http.ResponseWriter, r *httpapi.Request) (any, error) {
	if err := mayJoin(caller, r); err != nil {
		return nil, err
	}
	topic := r.PathValue("topic")
	if _, err := m.Log.LookupTopic(r.Context(), topic); err != nil {
		return nil, err
	}
	names, err := m.Groups.Groups(r.Context(), topic)
	return groupList{joinable(caller, topic, names)}, err
}

// joinable are the groups that the sender may subscribe with; an empty array, not null.
func joinable(caller *session.Session, topic string, names []string) []string {
	return slices.DeleteFunc(append([]string{}, names...), func(name string) bool { return caller.May(access.Subscribe, topic, name) != nil })
}

func (m *handlers) showGroup(caller *session.Session, _ http.ResponseWriter, r *httpapi.Request) (any, error) {
	if err := mayJoin(caller, r); err != nil {
		return nil, err
	}
	return m.Groups.Info(r.Context(), r.PathValue("topic"), r.PathValue("group"))
}

// maxCursorBody is larger than any cursor.
const maxCursorBody = 64 << 10

// moveGroup sets a group's cursor, or describes what that would do.
func (m *handlers) moveGroup(caller *session.Session, w http.ResponseWriter, r *httpapi.Request) (any, error) {
	topic, name := r.PathValue("topic"), r.PathValue("group")
	content, bad := m.Bodies.Read(caller.Share(), w, r.Request, maxCursorBody)
	if bad != nil {
		return nil, bad
	}
	to, bad := CursorOf(content)
	if bad != nil {
		return nil, bad
	}
	if err := mayJoin(caller, r); err != nil {
		return nil, err
	}
	if r.DryRun() {
		return m.Groups.PlanSeek(r.Context(), topic, name, to)
	}
	return nil, m.Groups.Seek(r.Context(), topic, name, to)
}

// deleteGroup removes a group that has no members.
func (m *handlers) deleteGroup(caller *session.Session, _ http.ResponseWriter, r *httpapi.Request) (any, error) {
	if err := mayJoin(caller, r); err != nil {
		return nil, err
	}
	topic, name := r.PathValue("topic"), r.PathValue("group")
	m.LeavePulls(topic, name)
	if err := m.Groups.Delete(r.Context(), topic, name); err != nil {
		return nil, err
	}
	m.Logger.Info("a group was deleted", "topic", topic, "group", name, "by", caller.Identity().Name)
	return nil, nil
}

// cursorBody is the position to which a group is to be moved.
type cursorBody struct {
	From      *string           `json:"from"`
	TS        *int64            `json:"ts,omitempty"`
	AfterID   *string           `json:"afterId,omitempty"`
	Positions map[string]uint64 `json:"positions,omitempty"`
}

// CursorOf reads the position to which a group is to be moved.
func CursorOf(content []byte) (o wire.SubscribeOptions, bad *wire.Error) {
	in, bad := httpapi.ReadObject[cursorBody](content)
	if bad != nil {
		return o, bad
	}
	switch {
	case in.From == nil:
		return o, wire.Errorf(wire.BadRequest, "from is missing; allowed are latest, earliest, ts, afterId and positions")
	case *in.From == "":
		return o, wire.Errorf(wire.BadRequest, "from is empty; allowed are latest, earliest, ts, afterId and positions")
	}
	if in.AfterID != nil {
		if bad := codec.CheckID(*in.AfterID); bad != nil {
			return o, wire.Errorf(bad.Code, "afterId: %s", bad.Msg)
		}
		o.AfterID = *in.AfterID
	}
	if in.TS != nil {
		if bad := codec.CheckTS(*in.TS); bad != nil {
			return o, bad
		}
	}
	o.From, o.TS = *in.From, in.TS
	if o.Positions, bad = codec.PositionsOf(in.Positions); bad != nil {
		return o, bad
	}
	if o.Positions != nil && len(o.Positions) == 0 {
		return o, wire.Errorf(wire.BadRequest, "positions names no partition; those that it names are moved, such as {\"0\":1042}")
	}
	return o, codec.CheckFrom(&o)
}
