package mongolog

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// MigrateOptions are for Log.Migrate.
type MigrateOptions struct {
	// DryRun changes nothing and reports what would be changed.
	DryRun bool
	// Retention is what a topic keeps by the policies that are to be in
	// force; nil leaves the times of stubs as they are.
	Retention func(topic string) eventlog.Retention
	// Progress is told how far a step has come; it may be nil. total may be
	// an estimate, and done may pass it.
	Progress func(step string, done, total int64)
}

// The steps that Progress is told of.
const (
	StepIndexes = "indexes"
	StepStubs   = "stubs"
)

// MigrateReport is what a migration did, or with DryRun would do.
type MigrateReport struct {
	Server   string        `json:"server"`
	Database string        `json:"database"`
	DryRun   bool          `json:"dry_run"`
	Indexes  []IndexReport `json:"indexes"`
	Stubs    []StubReport  `json:"stubs"`
	Notes    []string      `json:"notes,omitempty"`
	// FailedIndex is the one, collection.name, whose action failed: the
	// migration has ended there.
	FailedIndex string `json:"failed_index,omitempty"`
}

// IndexAction is what becomes of an index.
type IndexAction string

// The actions.
const (
	IndexKept    IndexAction = "keep"
	IndexCreated IndexAction = "create"
	// IndexRebuilt: it has the log's name, but is not what the log needs.
	IndexRebuilt IndexAction = "rebuild"
	// IndexDropped: a migration that was interrupted has left it.
	IndexDropped IndexAction = "drop"
	// IndexForeign: somebody else's, which stays as it is.
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

// StubReport is about what a topic remembers of removed events.
type StubReport struct {
	Topic    string `json:"topic"`
	WindowMS int64  `json:"dedupe_window_ms"` // 0: for ever
	Stubs    int64  `json:"stubs"`
	Changed  int64  `json:"changed"` // documents whose expireAt was wrong
}

// Changes is how many things the migration changed, or would.
func (r *MigrateReport) Changes() int64 {
	var n int64
	for _, x := range r.Indexes {
		if x.Action != IndexKept && x.Action != IndexForeign && x.fullName() != r.FailedIndex {
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

// Migrate makes the store's indexes what this version of the log needs, and
// gives the stubs of removed events the times that go with the policies to be
// in force. It is safe to run twice, at any point of a run that was
// interrupted, and while sidecars use the store. What it did before an error is
// in the report. It is not bound by Options.Timeout: an index takes its time.
func (l *Log) Migrate(ctx context.Context, o MigrateOptions) (MigrateReport, error) {
	if err := ctx.Err(); err != nil {
		return MigrateReport{}, err
	}
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return MigrateReport{}, errClosed
	}
	l.calls.Add(1)
	l.mu.Unlock()
	defer l.calls.Done()
	if o.Progress == nil {
		o.Progress = func(string, int64, int64) {}
	}
	// Operations create what is missing; a dry run must not. So it does not
	// begin like one.
	e, err := l.detect(ctx)
	if err != nil {
		return MigrateReport{}, unavailable(ctx, "connect", err)
	}
	m := migration{log: l, engine: e, options: o}
	m.report = MigrateReport{
		Server: e.String(), Database: l.db.Name(), DryRun: o.DryRun,
		Indexes: []IndexReport{}, Stubs: []StubReport{}, // [] rather than null
	}
	return m.run(ctx)
}

// migration is one call of Migrate.
type migration struct {
	log     *Log
	engine  engine
	options MigrateOptions
	report  MigrateReport
	events  *mongo.Collection // once reindex is done
}

func (m *migration) run(ctx context.Context) (MigrateReport, error) {
	if !m.options.DryRun {
		if err := m.log.awaitOlderNodes(ctx); err != nil {
			return m.report, err
		}
	}
	if err := m.reindex(ctx); err != nil {
		return m.report, fmt.Errorf("migrate indexes: %w%s", err, hint(err))
	}
	if err := m.restamp(ctx); err != nil {
		return m.report, fmt.Errorf("migrate stubs: %w%s", err, hint(err))
	}
	return m.report, nil
}

// String is the server as people call it.
func (e engine) String() string {
	var s strings.Builder
	if s.WriteString("MongoDB " + e.version); !e.mongo {
		s.Reset()
		s.WriteString("A server compatible with MongoDB " + e.version)
	}
	switch {
	case e.sharded:
		s.WriteString(", sharded")
	case e.replicated:
		s.WriteString(", replica set")
	}
	return s.String()
}
