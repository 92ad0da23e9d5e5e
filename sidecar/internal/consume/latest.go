package consume

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/refusal"
	"github.com/sluice-bus/sluice/sidecar/internal/sendbuffer"
	"github.com/sluice-bus/sluice/sidecar/internal/session"
)

// maxLatestKeys is how many keys a request for latest events may name.
const maxLatestKeys = 1000

// latestPage bounds the memory of an answer with latest events.
var latestPage = eventlog.Bounds{Events: 1000, Bytes: 256 << 10}

// readLatest answers with the latest event of each key, and then with the positions up to which
// these are the latest: a line each.
func (c *Consumers) readLatest(caller *session.Session, w http.ResponseWriter, r *httpapi.Request) error {
	queries, err := c.latestOf(caller, r)
	if err != nil {
		return err
	}
	if err := caller.Share().Enter(budget.Latest); err != nil {
		return err
	}
	defer caller.Share().Leave(budget.Latest)
	return c.sendLatest(caller, w, r, queries)
}

// latestOf reads the requested keys: the named ones and those with the prefix; without either, all
// keys.
func (c *Consumers) latestOf(caller *session.Session, r *httpapi.Request) ([]eventlog.LatestQuery, error) {
	keys, prefix := slices.Clone(r.List("key")), r.Text("prefix")
	if len(keys) > maxLatestKeys {
		return nil, httpapi.BadParam("key", "%d keys are named; at most %d are allowed", len(keys), maxLatestKeys)
	}
	if err := mayJoin(caller, r); err != nil {
		return nil, err
	}
	var queries []eventlog.LatestQuery
	if prefix != "" || len(keys) == 0 {
		queries = append(queries, eventlog.KeyPrefix(prefix))
	}
	slices.Sort(keys)
	for _, key := range slices.Compact(keys) {
		if prefix == "" || !strings.HasPrefix(key, prefix) {
			queries = append(queries, eventlog.OneKey(key))
		}
	}
	return queries, nil
}

// sendLatest reads page by page, so that memory is bounded. After the first line an error is also a
// line, and no positions follow.
func (c *Consumers) sendLatest(caller *session.Session, w http.ResponseWriter, r *httpapi.Request, queries []eventlog.LatestQuery) error {
	topic := r.PathValue("topic")
	extents, err := c.cfg.Log.Extents(r.Context(), topic)
	if err != nil {
		return err
	}
	upTo, positions := make([]uint64, len(extents)), make(map[int]uint64, len(extents))
	for p, e := range extents {
		upTo[p], positions[p] = e.Head, e.Head
	}
	out := http.NewResponseController(w)
	defer func() { _ = out.SetWriteDeadline(time.Time{}) }() // for the next answer on this connection
	w.Header().Set("Content-Type", "application/x-ndjson")
	s := sendbuffer.NewScratch()
	defer s.Free()
	if r.Method == http.MethodHead {
		queries = nil
	}
	started := false
	for _, q := range queries {
		for q.UpTo = upTo; ; {
			page, err := c.cfg.Log.Latest(r.Context(), topic, q, latestPage)
			if err == nil {
				err = caller.MayStill(topic, "")
			}
			if err != nil && !started {
				return err
			}
			if err != nil {
				if r.Context().Err() == nil {
					line, _ := refusal.Line(err)
					_ = c.write(caller, w, out, append(line, '\n'))
				}
				return nil
			}
			if len(page) == 0 {
				break
			}
			size := 0
			for _, rec := range page {
				size += rec.Size()
			}
			caller.Share().Take(size) // and write takes the text
			s.B = s.B[:0]
			for _, rec := range page {
				if !rec.Tombstone() {
					s.B = append(codec.AppendEventJSON(s.B, &rec.Event), '\n')
				}
			}
			err = c.write(caller, w, out, s.B)
			caller.Share().Give(size)
			if err != nil {
				return nil // the client is gone, or does not read
			}
			started = true
			q.Below = page[len(page)-1].Key
		}
	}
	_ = c.write(caller, w, out, append(codec.AppendPositions(append(s.B[:0], `{"positions":`...), positions), "}\n"...))
	return nil
}
