package gateway

import (
	"encoding/json"
	"errors"
	"net/http"
	"unicode/utf8"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// topicInfo is a topic as GET /v1/topics lists it.
type topicInfo struct {
	Topic      string          `json:"topic"`
	Partitions []partitionInfo `json:"partitions"`
}

// partitionInfo is what a partition holds: seqs from First to Head, and nothing
// where First is above Head.
type partitionInfo struct {
	Partition int    `json:"partition"`
	First     uint64 `json:"first"`
	Head      uint64 `json:"head"`
}

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

func (g *Gateway) listTopics(w http.ResponseWriter, r *http.Request) {
	type list struct {
		Topics []topicInfo `json:"topics"`
	}
	answer(g, w, r, func() (list, error) {
		topics, err := g.topicInfos(r)
		return list{topics}, err
	})
}

func (g *Gateway) topicInfos(r *http.Request) ([]topicInfo, error) {
	topics, err := g.cfg.Log.Topics(r.Context())
	if err != nil {
		return nil, err
	}
	infos := make([]topicInfo, 0, len(topics))
	for _, tp := range topics {
		if !g.sees(r, tp.Name) {
			continue
		}
		extents, err := g.cfg.Log.Extents(r.Context(), tp.Name)
		if err != nil {
			return nil, err
		}
		info := topicInfo{Topic: tp.Name, Partitions: make([]partitionInfo, len(extents))}
		for i, e := range extents {
			info.Partitions[i] = partitionInfo{Partition: i, First: e.First, Head: e.Head}
		}
		infos = append(infos, info)
	}
	return infos, nil
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
		if err := wire.CheckReadTopic(topic); err != nil {
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
	if bad := wire.CheckReadTopic(topic); bad != nil {
		return "", "", bad
	}
	if bad := wire.CheckGroup(name); bad != nil {
		return "", "", bad
	}
	return topic, name, nil
}

// maxCursorBody is more than any cursor takes.
const maxCursorBody = 64 << 10

// moveGroup sets a group's cursor.
func (g *Gateway) moveGroup(w http.ResponseWriter, r *http.Request) {
	if err := g.seek(w, r); err != nil {
		httpapi.WriteError(w, r, refusal(err), g.cfg.Logger)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (g *Gateway) seek(w http.ResponseWriter, r *http.Request) error {
	topic, name, err := groupOf(r)
	if err != nil {
		return err
	}
	if g.refusing() {
		return errStopping()
	}
	content, bad := g.readAtMost(w, r, maxCursorBody)
	if bad != nil {
		return bad
	}
	o, bad := cursorOf(content)
	if bad != nil {
		return bad
	}
	if err := g.may(r, access.Subscribe, topic, name); err != nil {
		return err
	}
	return g.cfg.Groups.Seek(r.Context(), topic, name, o)
}

// cursorOf reads where a group is to be moved.
func cursorOf(content []byte) (o wire.SubscribeOptions, bad *wire.Error) {
	var in struct {
		From    *string `json:"from"`
		TS      *int64  `json:"ts"`
		AfterID *string `json:"afterId"`
	}
	if !utf8.Valid(content) {
		return o, wire.Errorf(wire.BadJSON, "the body is not JSON: it is not valid UTF-8")
	}
	var wrong *json.UnmarshalTypeError
	err := json.Unmarshal(content, &in)
	switch {
	case errors.As(err, &wrong) && wrong.Field == "":
		return o, wire.Errorf(wire.BadRequest, "the body must be a JSON object with from, and ts or afterId where from needs it")
	case errors.As(err, &wrong):
		return o, wire.Errorf(wire.BadRequest, "%s must be a %s, and not a %s", wrong.Field, kinds[wrong.Field], wrong.Value)
	case err != nil:
		return o, wire.Errorf(wire.BadJSON, "the body is not JSON: %v", err)
	case in.From == nil:
		return o, wire.Errorf(wire.BadRequest, "from is missing; allowed are latest, earliest, ts and afterId")
	case *in.From == "":
		return o, wire.Errorf(wire.BadRequest, "from is empty; allowed are latest, earliest, ts and afterId")
	}
	if in.AfterID != nil {
		if bad := wire.CheckID(*in.AfterID); bad != nil {
			return o, wire.Errorf(bad.Code, "afterId: %s", bad.Msg)
		}
		o.AfterID = *in.AfterID
	}
	if in.TS != nil {
		if bad := wire.CheckTS(*in.TS); bad != nil {
			return o, bad
		}
	}
	o.From, o.TS = *in.From, in.TS
	return o, wire.CheckFrom(o.From, o.TS, o.AfterID)
}

// kinds says what the members of a cursor are.
var kinds = map[string]string{"from": "string", "ts": "whole number of milliseconds", "afterId": "string"}
