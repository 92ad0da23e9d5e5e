package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"time"

	_ "modernc.org/sqlite" // the driver that FerretDB uses
)

// indexInterval is how often new collections are looked for.
const indexInterval = 100 * time.Millisecond

// indexer gives each collection an index for reads by _id. FerretDB indexes the column under another expression than the
// one that it reads by, so that SQLite reads the whole table for every single document; tests of more than a few hundred
// events would then be about that. What a collection answers is the same with the index and without.
type indexer struct {
	dir  string
	seen map[string]fileState // by the name of the database's file, what it looked like before it was last indexed
}

// fileState tells whether a database may have changed. It may miss a change, not the one after it.
type fileState struct {
	size, walSize         int64
	modified, walModified time.Time
}

func (x *indexer) run(ctx context.Context) {
	tick := time.NewTicker(indexInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			x.look(ctx)
		}
	}
}

// look indexes the databases that have changed.
func (x *indexer) look(ctx context.Context) {
	files, err := filepath.Glob(filepath.Join(x.dir, "*.sqlite"))
	if err != nil {
		slog.WarnContext(ctx, "looking for databases", "error", err)
		return
	}
	states := make(map[string]fileState, len(files))
	for _, file := range files {
		state := stateOf(file)
		if state != x.seen[file] {
			if err := indexDatabase(ctx, file); err != nil {
				if !gone(file) && ctx.Err() == nil {
					slog.WarnContext(ctx, "indexing a database, which is tried again", "file", file, "error", err)
				}
				continue
			}
		}
		states[file] = state
	}
	x.seen = states
}

func stateOf(file string) fileState {
	var s fileState
	if info, err := os.Stat(file); err == nil {
		s.size, s.modified = info.Size(), info.ModTime()
	}
	if info, err := os.Stat(file + "-wal"); err == nil {
		s.walSize, s.walModified = info.Size(), info.ModTime()
	}
	return s
}

// gone tells that a database has been dropped.
func gone(file string) bool {
	_, err := os.Stat(file)
	return errors.Is(err, os.ErrNotExist)
}

// indexDatabase is done with the file when it returns: a connection that stayed would outlive a drop of the database.
func indexDatabase(ctx context.Context, file string) error {
	u := url.URL{
		Scheme:   "file",
		Opaque:   (&url.URL{Path: filepath.ToSlash(file)}).EscapedPath(),
		RawQuery: url.Values{"mode": {"rw"}, "_pragma": {"busy_timeout(10000)"}}.Encode(),
	}
	db, err := sql.Open("sqlite", u.String())
	if err != nil {
		return err
	}
	defer db.Close()
	tables, err := unindexed(ctx, db)
	if err != nil {
		return err
	}
	for _, table := range tables {
		q := fmt.Sprintf(`CREATE INDEX IF NOT EXISTS %q ON %q (_ferretdb_sjson->'$._id')`, table+indexSuffix, table)
		if _, err := db.ExecContext(ctx, q); err != nil {
			return err
		}
	}
	return nil
}

const indexSuffix = "_mongotest_by_id"

// unindexed returns the tables of collections that have no such index yet.
func unindexed(ctx context.Context, db *sql.DB) ([]string, error) {
	rows, err := db.QueryContext(ctx, `
		SELECT name FROM sqlite_schema AS t
		WHERE type = 'table' AND sql LIKE '%\_ferretdb\_sjson TEXT%' ESCAPE '\'
		AND NOT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'index' AND name = t.name || ?)`, indexSuffix)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var tables []string
	for rows.Next() {
		var table string
		if err := rows.Scan(&table); err != nil {
			return nil, err
		}
		tables = append(tables, table)
	}
	return tables, rows.Err()
}
