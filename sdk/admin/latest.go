package admin

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
)

// LatestQuery selects keys: the named ones and those with the prefix; without either all.
type LatestQuery struct {
	Topic  string
	Keys   []string // up to 1,000
	Prefix string
}

// Latest calls each for the latest event of each key, in no promised order, without keys whose
// latest event deletes them. It returns the positions up to which they are the latest, by
// partition: a subscription with [option.FromPositions] goes on right behind them. The code
// not_found says that there is no such topic yet.
//
// Latest returns positions only if it has called each for all of the events. An error of each ends
// Latest and is returned. If the answer broke off, the error matches [ErrTruncated].
func (h *HTTP) Latest(ctx context.Context, q LatestQuery, each func(wire.Event) error) (positions map[int]uint64, err error) {
	v := url.Values{}
	if len(q.Keys) > 0 {
		v["key"] = q.Keys
	}
	if q.Prefix != "" {
		v.Set("prefix", q.Prefix)
	}
	resp, err := h.call(ctx, http.MethodGet, h.AppURL, topicPath(q.Topic, "latest")+"?"+v.Encode(), nil, nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	lines := lineReader{in: bufio.NewReaderSize(resp.Body, 64<<10)}
	for {
		line, err := lines.next()
		switch {
		case errors.Is(err, io.EOF):
			return nil, broken(ctx, errors.New("it has no positions"))
		case err != nil:
			return nil, broken(ctx, err)
		case !bytes.HasPrefix(line, []byte(eventPrefix)):
			return latestEnd(line)
		}
		e, err := codec.ParseEvent(line)
		if err == nil {
			err = each(e)
		}
		if err != nil {
			return nil, err
		}
	}
}

// eventPrefix begins the lines that are events.
const eventPrefix = `{"id":`

// latestEnd reads the last line: the positions, or the reason why there are none.
func latestEnd(line []byte) (map[int]uint64, error) {
	var end struct {
		Positions map[int]uint64
		Code      wire.Code
		Error     string
	}
	if err := json.Unmarshal(line, &end); err != nil {
		return nil, fmt.Errorf("the last line of an answer with latest events: %w", err)
	}
	if end.Code != "" {
		return nil, &wire.Error{Code: end.Code, Msg: end.Error}
	}
	if end.Positions == nil {
		return nil, fmt.Errorf("%w: its last line has no positions", ErrTruncated)
	}
	return end.Positions, nil
}
