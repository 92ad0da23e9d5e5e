package setup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
)

// MigrateOptions are for Migrate.
type MigrateOptions struct {
	// DryRun changes nothing and reports the changes that are due.
	DryRun bool
	// Retention is a topic's retention by the policies in force; nil leaves the times of stubs
	// unchanged.
	Retention func(topic string) eventlog.Retention
	// Progress is called with the progress of a step; it may be nil. total may be an estimate, and
	// done may exceed it.
	Progress func(step string, done, total int64)
}

// The steps for which Progress is called.
const (
	StepIndexes = "indexes"
	StepStubs   = "stubs"
)

// MigrateReport lists the changes of a migration, or with DryRun those that are due.
type MigrateReport struct {
	Server   string        `json:"server"`
	Database string        `json:"database"`
	DryRun   bool          `json:"dry_run"`
	Indexes  []IndexReport `json:"indexes"`
	Stubs    []StubReport  `json:"stubs"`
	Notes    []string      `json:"notes,omitempty"`
	// FailedIndex is the index, as collection.name, that could not be created. The migration ended
	// there.
	FailedIndex string `json:"failed_index,omitempty"`
}

// IndexAction is what a migration does with an index.
type IndexAction string

// The actions.
const (
	IndexKept    IndexAction = "keep"
	IndexCreated IndexAction = "create"
	// IndexWrong: it has the log's name, but is not the index that the log needs. It stays, and has
	// to be dropped by hand.
	IndexWrong IndexAction = "wrong"
	// IndexForeign: an index of another program, which stays as it is.
	IndexForeign IndexAction = "not ours"
)

// IndexReport is about one index.
type IndexReport struct {
	Collection string      `json:"collection"`
	Name       string      `json:"name"`
	Keys       string      `json:"keys"`
	Action     IndexAction `json:"action"`
	Detail     string      `json:"detail,omitempty"`
}

func (x IndexReport) fullName() string { return x.Collection + "." + x.Name }

// StubReport is about the stubs of a topic's removed events.
type StubReport struct {
	Topic    string `json:"topic"`
	WindowMS int64  `json:"dedupe_window_ms"` // 0: for ever
	Stubs    int64  `json:"stubs"`
	Changed  int64  `json:"changed"` // documents whose expireAt was wrong
}

// Changes is how many changes the migration made, or would make.
func (r *MigrateReport) Changes() int64 {
	var n int64
	for _, x := range r.Indexes {
		if x.Action == IndexCreated && x.fullName() != r.FailedIndex {
			n++
		}
	}
	for _, s := range r.Stubs {
		n += s.Changed
	}
	return n
}

// WriteTable writes the report for people.
func (r *MigrateReport) WriteTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "%s, database %s\n\n", r.Server, r.Database)
	fmt.Fprint(t, "COLLECTION\tINDEX\tKEYS\tACTION\t\n")
	for _, x := range r.Indexes {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", x.Collection, x.Name, x.Keys, x.Action, x.Detail)
	}
	if len(r.Stubs) > 0 {
		fmt.Fprint(t, "\nTOPIC\tDEDUPE WINDOW\tREMEMBERED IDS\tRE-STAMPED\n")
	}
	for _, s := range r.Stubs {
		window := "for ever"
		if s.WindowMS > 0 {
			window = (time.Duration(s.WindowMS) * time.Millisecond).String()
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\n", s.Topic, window, s.Stubs, s.Changed)
	}
	fmt.Fprintln(t)
	for _, note := range r.Notes {
		fmt.Fprintln(t, note)
	}
	switch n := r.Changes(); {
	case r.FailedIndex != "":
		fmt.Fprintf(t, "It ended at %s, which failed; changes made before that: %d.\n", r.FailedIndex, n)
	case n == 0:
		fmt.Fprintln(t, "Everything is as it should be.")
	case r.DryRun:
		fmt.Fprintf(t, "A dry run: nothing was changed; changes that are due: %d.\n", n)
	default:
		fmt.Fprintf(t, "Changes made: %d.\n", n)
	}
	return t.Flush()
}

// Migrate creates the indexes that this version of the log needs and the store lacks, and gives the
// stubs of removed events the times of the policies in force. A wrong index is an error that says
// what to do. Migrate may run repeatedly, after an interrupted run, and while sidecars use the store.
// The report has the changes made before an error. Config.Timeout does not bound it: building an
// index takes its time.
func (su *Setup) Migrate(ctx context.Context, o MigrateOptions) (MigrateReport, error) {
	if err := ctx.Err(); err != nil {
		return MigrateReport{}, err
	}
	if !su.store.Join() {
		return MigrateReport{}, core.ErrClosed
	}
	defer su.store.Leave()
	if o.Progress == nil {
		o.Progress = func(string, int64, int64) {}
	}
	// Begin would create missing collections and indexes, and a dry run must not. So Migrate does
	// not use it.
	server, err := su.detect(ctx)
	if err != nil {
		return MigrateReport{}, su.store.Unavailable(ctx, "connect", err)
	}
	m := migration{Setup: su, options: o}
	m.report = MigrateReport{
		Server: server.String(), Database: su.store.DB.Name(), DryRun: o.DryRun,
		Indexes: []IndexReport{}, Stubs: []StubReport{}, // [] rather than null
	}
	return m.run(ctx)
}

// migration is one call of Migrate.
type migration struct {
	*Setup
	options MigrateOptions
	report  MigrateReport
}

func (m *migration) run(ctx context.Context) (MigrateReport, error) {
	ensure := m.ensureMeta
	if m.options.DryRun {
		ensure = m.readMeta
	}
	if _, err := ensure(ctx); err != nil && !errors.Is(err, mongo.ErrNoDocuments) {
		return m.report, err
	}
	if err := m.indexes(ctx); err != nil {
		return m.report, fmt.Errorf("migrate indexes: %w%s", err, core.Advice(err))
	}
	if err := m.restamp(ctx); err != nil {
		return m.report, fmt.Errorf("migrate stubs: %w%s", err, core.Advice(err))
	}
	return m.report, nil
}

// indexes creates missing indexes, and refuses wrong ones.
func (m *migration) indexes(ctx context.Context) error {
	wanted := indexes()
	m.options.Progress(StepIndexes, 0, int64(len(wanted)))
	stored := map[string][]storedIndex{}
	var wrong []error
	for i, x := range wanted {
		list, listed := stored[x.collection]
		if !listed {
			var err error
			if list, err = m.storedIndexes(ctx, x.collection); err != nil {
				return err
			}
			stored[x.collection] = list
			m.foreign(x.collection, list, wanted)
		}
		err := m.index(ctx, x, list)
		if errors.Is(err, errWrongIndex) {
			wrong = append(wrong, err)
		} else if err != nil {
			return fmt.Errorf("index %s of %s: %w", x.name(), x.collection, err)
		}
		m.options.Progress(StepIndexes, int64(i)+1, int64(len(wanted)))
	}
	return errors.Join(wrong...)
}

var errWrongIndex = errors.New("drop it, and migrate again")

// index creates one index if it is missing.
func (m *migration) index(ctx context.Context, x index, stored []storedIndex) error {
	want, coll := x.spec(), m.store.DB.Collection(x.collection)
	report := IndexReport{Collection: coll.Name(), Name: x.name(), Keys: want.keys, Action: IndexCreated}
	var err error
	if s := like(x, stored); s != nil {
		report.Action = IndexKept
		if differs := s.differs(want); differs != "" {
			report.Action, report.Detail = IndexWrong, differs
			err = fmt.Errorf("index %s of %s is wrong, %s: %w (in mongosh: db.getCollection(%q).dropIndex(%q))",
				s.name, coll.Name(), differs, errWrongIndex, coll.Name(), s.name)
		} else if s.name != x.name() {
			report.Detail = "there by the name " + s.name
		}
	} else if !m.options.DryRun {
		if _, err = coll.Indexes().CreateOne(ctx, x.model(x.name())); err != nil {
			m.report.FailedIndex = report.fullName()
		}
		if x.unique && mongo.IsDuplicateKeyError(err) {
			err = fmt.Errorf("it has to be unique, so no two documents may have the same %s: %w", want.keys, err)
		}
	}
	m.report.Indexes = append(m.report.Indexes, report)
	return err
}

// foreign reports the indexes of a collection that are not the log's.
func (m *migration) foreign(collection string, stored []storedIndex, wanted []index) {
	for _, s := range stored {
		if s.name == "_id_" || slices.ContainsFunc(wanted, func(x index) bool {
			return x.collection == collection && (x.name() == s.name || s.keys == x.spec().keys)
		}) {
			continue
		}
		r := IndexReport{Collection: collection, Name: s.name, Keys: s.keys, Action: IndexForeign}
		switch {
		case s.expires != "":
			r.Detail = "it makes the server remove documents"
		case s.unique:
			r.Detail = "it is unique, so the server may refuse documents of the log"
		}
		m.report.Indexes = append(m.report.Indexes, r)
	}
}
