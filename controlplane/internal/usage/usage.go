// Package usage keeps how many events of each topic and tenant were accepted and refused on each day. It counts what
// sidecars report to this control plane, and reads what all control planes of the store have counted.
package usage

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/controlplane/internal/store"
	"github.com/sluice-bus/sluice/internal/pause"
)

const (
	// KeepDays is for how long usage is kept.
	KeepDays = 400
	// MaxRows bounds the topics and tenants of a day at one control plane. Further topics are counted as Other,
	// and further tenants in their topic alone.
	MaxRows = 20_000
	// Other stands for all topics beyond the bound.
	Other = "_other"

	saveEvery  = time.Minute
	saveWithin = 2 * time.Second
	// maxDocument bounds an unpacked document.
	maxDocument = 64 << 20
)

// Name is what is counted.
type Name struct {
	Topic  string `json:"topic"`
	Tenant string `json:"tenant,omitempty"` // "": the topic, with all of its tenants
}

// Compare orders names by topic and tenant.
func (n Name) Compare(m Name) int {
	return cmp.Or(cmp.Compare(n.Topic, m.Topic), cmp.Compare(n.Tenant, m.Tenant))
}

// Row is the usage of a topic or a tenant.
type Row struct {
	Name
	Accepted int64 `json:"accepted"`
	Refused  int64 `json:"refused"` // of a tenant: by its limit
	// Refusals are a topic's refused events by error code.
	Refusals map[string]int64 `json:"refusals,omitempty"`
}

// day is what was counted on a day.
type day struct {
	rows   map[Name]Row
	number int64 // of the last save
	fresh  bool  // not saved yet
}

// Book counts. It is safe for concurrent use.
type Book struct {
	store  store.Usage
	writer string
	logger *slog.Logger

	mu   sync.Mutex
	days map[string]*day
	last string // the latest day
}

// New makes a Book of a control plane whose name no other one has, also none before it.
func New(s store.Usage, writer string, logger *slog.Logger) *Book {
	return &Book{store: s, writer: writer, logger: logger, days: map[string]*day{}}
}

// Count adds what was accepted of a topic or a tenant, and what a tenant's limit refused.
func (b *Book) Count(topic, tenant string, accepted, refused uint64, at time.Time) {
	b.count(Row{Name: Name{topic, tenant}, Accepted: int64(accepted), Refused: int64(refused)}, at)
}

// Refuse adds events of a topic that were refused with an error code.
func (b *Book) Refuse(topic, code string, n int64, at time.Time) {
	b.count(Row{Name: Name{Topic: topic}, Refused: n, Refusals: map[string]int64{code: n}}, at)
}

func (b *Book) count(r Row, at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last = max(b.last, at.UTC().Format(time.DateOnly)) // a clock that is set back does not begin a day again
	d := b.days[b.last]
	if d == nil {
		d = &day{rows: map[Name]Row{}}
		b.days[b.last] = d
	}
	if _, there := d.rows[r.Name]; !there && len(d.rows) >= MaxRows {
		if r.Tenant != "" {
			return
		}
		r.Name = Name{Topic: Other}
	}
	d.add(r)
	d.fresh = true
}

func (d *day) add(r Row) {
	sum := d.rows[r.Name]
	sum.Name, sum.Accepted, sum.Refused = r.Name, sum.Accepted+r.Accepted, sum.Refused+r.Refused
	if sum.Refusals == nil && r.Refusals != nil {
		sum.Refusals = map[string]int64{}
	}
	for code, n := range r.Refusals {
		sum.Refusals[code] += n
	}
	d.rows[r.Name] = sum
}

// Run saves what was counted, until ctx ends.
func (b *Book) Run(ctx context.Context) error {
	failing, forgot := false, ""
	for goes := true; goes; {
		goes = pause.For(ctx, saveEvery)
		saving, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveWithin)
		err := b.save(saving)
		if oldest := time.Now().UTC().AddDate(0, 0, -KeepDays).Format(time.DateOnly); err == nil && forgot != oldest {
			if err = b.store.ForgetUsage(saving, oldest); err == nil {
				forgot = oldest
			}
		}
		cancel()
		if err != nil && !failing {
			b.logger.Warn("cannot store the usage of topics; trying again", "error", err, "again_in", saveEvery)
		}
		failing = err != nil
	}
	return nil
}

// save saves the days that have changed, and forgets those that are over.
func (b *Book) save(ctx context.Context) error {
	var docs []store.UsageDoc
	b.mu.Lock()
	for name, d := range b.days {
		if !d.fresh {
			continue
		}
		d.number++
		d.fresh = false
		docs = append(docs, store.UsageDoc{Day: name, Writer: b.writer, Number: d.number, Doc: pack(d.rows)})
	}
	b.mu.Unlock()
	var failed error
	for _, doc := range docs {
		err := b.store.PutUsage(ctx, doc)
		failed = errors.Join(failed, err)
		b.mu.Lock()
		switch d := b.days[doc.Day]; {
		case err != nil:
			d.fresh = true
		case !d.fresh && doc.Day != b.last:
			delete(b.days, doc.Day)
		}
		b.mu.Unlock()
	}
	return failed
}

// Between returns the sums of days, both included, of topics whose names begin with a prefix, with or without their
// tenants, by topic and tenant.
func (b *Book) Between(ctx context.Context, from, to, prefix string, tenants bool) ([]Row, error) {
	docs, err := b.store.UsageBetween(ctx, from, to)
	if err != nil {
		return nil, err
	}
	sum := day{rows: map[Name]Row{}}
	add := func(r Row) {
		if strings.HasPrefix(r.Topic, prefix) && (tenants || r.Tenant == "") {
			sum.add(r)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, d := range docs {
		if d.Writer == b.writer && b.days[d.Day] != nil { // which has more
			continue
		}
		rows, err := unpack(d.Doc)
		if err != nil {
			return nil, fmt.Errorf("the usage of %s: %w", d.Day, err)
		}
		for _, r := range rows {
			add(r)
		}
	}
	for name, d := range b.days {
		if from <= name && name <= to {
			for _, r := range d.rows {
				add(r)
			}
		}
	}
	return slices.SortedFunc(maps.Values(sum.rows), func(a, b Row) int { return a.Compare(b.Name) }), nil
}

func pack(rows map[Name]Row) []byte {
	var out bytes.Buffer
	to := gzip.NewWriter(&out)
	list := slices.SortedFunc(maps.Values(rows), func(a, b Row) int { return a.Compare(b.Name) })
	if err := errors.Join(json.NewEncoder(to).Encode(list), to.Close()); err != nil {
		panic("usage: " + err.Error()) // neither the types nor a buffer can fail
	}
	return out.Bytes()
}

func unpack(doc []byte) (rows []Row, _ error) {
	from, err := gzip.NewReader(bytes.NewReader(doc))
	if err != nil {
		return nil, err
	}
	return rows, json.NewDecoder(io.LimitReader(from, maxDocument)).Decode(&rows)
}
