// Package filewatch notices the changes of files that a program reads while it runs. It must not know their content.
package filewatch

import (
	"bytes"
	"context"
	"time"

	"github.com/sluice-bus/sluice/internal/pause"
)

// pollEvery is the interval of the polls. A change is taken once two consecutive polls have read the same content, so it acts
// within two polls, and a file that is being written is not read as a shorter one.
const pollEvery = 500 * time.Millisecond

// Config is what a Watch needs; every field is required.
type Config struct {
	// Taken is the content that was taken before.
	Taken []byte
	// Read reads the content, or makes a digest of it: the files are small, and only their content shows all kinds of changes (a rewrite
	// in place within one tick of the file system's clock, a rename, Kubernetes' swapped symbolic links).
	Read func() ([]byte, error)
	// Take is called with a changed content.
	Take func([]byte)
	// Failed is called with each new error of Read.
	Failed func(error)
}

// Watch follows the content of files.
type Watch struct {
	cfg    Config
	reread pause.Wake // set by Reread

	// The state of Run between two polls.
	pending []byte // the content of the last poll, if it differs from Taken; nil: none
	trouble string // why the last poll failed, so that it is told once
}

// New makes a Watch. Call Run to follow changes.
func New(cfg Config) *Watch { return &Watch{cfg: cfg, reread: pause.NewWake()} }

// Run follows the files until ctx ends.
func (w *Watch) Run(ctx context.Context) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-w.reread:
			w.look() // what the next look finds again counts
		}
		w.look()
	}
}

// Reread makes Run read the files at once, and take what it finds.
func (w *Watch) Reread() { w.reread.Set() }

func (w *Watch) look() {
	content, err := w.cfg.Read()
	if err != nil {
		w.pending = nil
		if err.Error() != w.trouble {
			w.trouble = err.Error()
			w.cfg.Failed(err)
		}
		return
	}
	w.trouble = ""
	switch {
	case bytes.Equal(content, w.cfg.Taken):
		w.pending = nil
	case w.pending == nil || !bytes.Equal(content, w.pending):
		w.pending = content
	default:
		w.cfg.Taken, w.pending = content, nil
		w.cfg.Take(content)
	}
}
