// Package policyfile puts the policies of a file in force, and follows its changes. It must not
// know the content of policies.
package policyfile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"

	"github.com/sluice-bus/sluice/internal/filewatch"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// Source follows a YAML file of policies.
type Source struct {
	path    string
	current *policy.Current
	log     *slog.Logger
	watch   *filewatch.Watch
}

// Open reads the policies of a file and puts them in force, in the [policy.Current] that it returns
// with the source. A file that cannot be read or is invalid is an error. Call [Source.Run] to
// follow its changes.
func Open(path string, log *slog.Logger) (*Source, *policy.Current, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, nil, fmt.Errorf("read policies: %w", err)
	}
	s, err := snapshotOf(data, log)
	if err != nil {
		return nil, nil, fmt.Errorf("policies of %s: %w", path, err)
	}
	current := policy.NewCurrent(s)
	f := &Source{path: path, current: current, log: log}
	f.watch = filewatch.New(filewatch.Config{
		Taken: data, Read: func() ([]byte, error) { return readFile(path) }, Take: f.apply, Failed: func(err error) {
			log.Warn("policies stay as they are: the file cannot be read", "file", path, "error", err)
		},
	})
	return f, current, nil
}

// Run follows the file until the context ends, and returns nil then. It logs an invalid change with
// every bad field, and an unreadable file; the policies in force stay.
func (f *Source) Run(ctx context.Context) error {
	f.watch.Run(ctx)
	return nil
}

// Reread makes Run read the file at once, and take what it finds. A nil Source follows no file.
func (f *Source) Reread() {
	if f != nil {
		f.watch.Reread()
	}
}

func (f *Source) apply(data []byte) {
	s, err := snapshotOf(data, f.log)
	if err != nil {
		for _, bad := range wire.AsError(err).Fields {
			f.log.Error("policies stay as they are: the changed file is invalid",
				"file", f.path, "field", bad.Field, "problem", bad.Message)
		}
		return
	}
	f.current.Swap(s)
	f.log.Info("policies changed", "file", f.path, "policies", len(s.List()))
}

// snapshotOf reads a document, and logs which of its fields have no effect.
func snapshotOf(data []byte, log *slog.Logger) (*policy.Snapshot, error) {
	policies, err := policy.ParseYAML(data)
	if err != nil {
		return nil, err
	}
	s, err := policy.NewSnapshot(policies, "file")
	if err != nil {
		return nil, err
	}
	for i := range policies {
		if ineffective := policies[i].Ineffective(); len(ineffective) > 0 {
			log.Warn("a policy sets fields that have no effect", "policy", policies[i].Name, "fields", ineffective)
		}
	}
	return s, nil
}

// readFile reads at most one byte more than a document may have.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "read", Path: path, Err: errors.New("not a regular file")}
	}
	return io.ReadAll(io.LimitReader(f, policy.MaxDocumentBytes+1))
}
