package gateway

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/group"
)

// answer writes what ask returns, as JSON, or its error.
func answer[T any](g *Gateway, w http.ResponseWriter, r *http.Request, ask func() (T, error)) {
	got, err := ask()
	if err == nil {
		var text []byte
		if text, err = json.Marshal(got); err == nil {
			writeJSON(w, http.StatusOK, text)
			return
		}
	}
	httpapi.WriteError(w, r, refusal(err), g.cfg.Logger)
}

// sees says whether the sender may do anything with a topic.
func (g *Gateway) sees(r *http.Request, topic string) bool {
	return g.may(r, access.Subscribe, topic, "") == nil || g.may(r, access.Publish, topic, "") == nil || g.may(r, access.Replay, topic, "") == nil
}

func (g *Gateway) listGroups(w http.ResponseWriter, r *http.Request) {
	type list struct {
		Groups []string `json:"groups"`
	}
	answer(g, w, r, func() (list, error) {
		topic := r.PathValue("topic")
		if err := codec.CheckReadTopic(topic); err != nil {
			return list{}, err
		}
		if err := g.may(r, access.Subscribe, topic, ""); err != nil {
			return list{}, err
		}
		if _, err := g.cfg.Log.LookupTopic(r.Context(), topic); err != nil {
			return list{}, err
		}
		names, err := g.cfg.Groups.Groups(r.Context(), topic)
		mine := []string{} // an empty array, not null
		for _, name := range names {
			if g.may(r, access.Subscribe, topic, name) == nil {
				mine = append(mine, name)
			}
		}
		return list{mine}, err
	})
}

func (g *Gateway) showGroup(w http.ResponseWriter, r *http.Request) {
	answer(g, w, r, func() (any, error) {
		topic, name, err := groupOf(r)
		if err == nil {
			err = g.may(r, access.Subscribe, topic, name)
		}
		if err != nil {
			return nil, err
		}
		return g.cfg.Groups.Info(r.Context(), topic, name)
	})
}

// groupOf is the topic and the group that the path names.
func groupOf(r *http.Request) (topic, name string, err error) {
	topic, name = r.PathValue("topic"), r.PathValue("group")
	if bad := codec.CheckReadTopic(topic); bad != nil {
		return "", "", bad
	}
	if bad := codec.CheckGroup(name); bad != nil {
		return "", "", bad
	}
	return topic, name, nil
}

// maxCursorBody is more than any cursor takes.
const maxCursorBody = 64 << 10

// moveGroup sets a group's cursor, or tells what that would do.
func (g *Gateway) moveGroup(w http.ResponseWriter, r *http.Request) {
	s, err := g.seekOf(w, r)
	if err == nil && s.dry {
		answer(g, w, r, func() (group.SeekPlan, error) { return g.cfg.Groups.PlanSeek(r.Context(), s.topic, s.group, s.to) })
		return
	}
	if err == nil {
		err = g.cfg.Groups.Seek(r.Context(), s.topic, s.group, s.to)
	}
	g.finish(w, r, err)
}

// finish answers what has nothing to tell, or its error.
func (g *Gateway) finish(w http.ResponseWriter, r *http.Request, err error) {
	if err != nil {
		httpapi.WriteError(w, r, refusal(err), g.cfg.Logger)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// seek is where a group is to be moved.
type seek struct {
	topic, group string
	to           wire.SubscribeOptions
	dry          bool // only say what it would do
}

func (g *Gateway) seekOf(w http.ResponseWriter, r *http.Request) (s seek, err error) {
	if s.topic, s.group, err = groupOf(r); err != nil {
		return s, err
	}
	if g.refusing() {
		return s, errStopping()
	}
	if s.dry, err = dryRun(r); err != nil {
		return s, err
	}
	content, bad := g.readAtMost(w, r, maxCursorBody)
	if bad != nil {
		return s, bad
	}
	if s.to, bad = cursorOf(content); bad != nil {
		return s, bad
	}
	return s, g.may(r, access.Subscribe, s.topic, s.group)
}

// dryRun says whether nothing is to be changed.
func dryRun(r *http.Request) (bool, error) {
	p, err := httpapi.ParseParams(r.URL.RawQuery)
	if err != nil {
		return false, err
	}
	return p.DryRun()
}

// deleteGroup removes a group that has no members.
func (g *Gateway) deleteGroup(w http.ResponseWriter, r *http.Request) {
	topic, name, err := groupOf(r)
	if err == nil {
		err = g.may(r, access.Subscribe, topic, name)
	}
	if err == nil {
		g.pulls.leave(topic, name)
		err = g.cfg.Groups.Delete(r.Context(), topic, name)
	}
	if err == nil {
		g.cfg.Logger.Info("a group was deleted", "topic", topic, "group", name, "by", g.sender(r))
	}
	g.finish(w, r, err)
}

// sender is who asks, as the log names it.
func (g *Gateway) sender(r *http.Request) string { return g.cfg.Access.From(r.Context()).Name }

// cursorOf reads where a group is to be moved.
func cursorOf(content []byte) (o wire.SubscribeOptions, bad *wire.Error) {
	var in struct {
		From      *string           `json:"from"`
		TS        *int64            `json:"ts"`
		AfterID   *string           `json:"afterId"`
		Positions map[string]uint64 `json:"positions"`
	}
	if !utf8.Valid(content) {
		return o, wire.Errorf(wire.BadJSON, "the body is not JSON: it is not valid UTF-8")
	}
	var wrong *json.UnmarshalTypeError
	err := json.Unmarshal(content, &in)
	switch {
	case errors.As(err, &wrong) && wrong.Field == "":
		return o, wire.Errorf(wire.BadRequest, "the body must be a JSON object with from, and ts, afterId or positions where from needs it")
	case errors.As(err, &wrong):
		field, _, _ := strings.Cut(wrong.Field, ".")
		return o, wire.Errorf(wire.BadRequest, "%s must be a %s, and not a %s", field, kinds[field], wrong.Value)
	case err != nil:
		return o, wire.Errorf(wire.BadJSON, "the body is not JSON: %v", err)
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
	if o.From == wire.FromPositions {
		o.Positions, bad = codec.PositionsOf(in.Positions)
		return o, bad
	}
	return o, codec.CheckFrom(o.From, o.TS, o.AfterID)
}

// kinds says what the members of a cursor are.
var kinds = map[string]string{"from": "string", "ts": "whole number of milliseconds", "afterId": "string", "positions": "object of whole numbers"}
