package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/sidecar"
)

// folderCommands are the commands about the embedded log of a data folder, by their names.
func folderCommands() map[string]program.Spec {
	var verify verifySettings
	var backup, restore fileSettings
	return map[string]program.Spec{
		"verify": {
			Description: "Reads all of a data folder that no sidecar runs on, and says what is damaged. Exit status 1: something is.",
			Settings:    &verify,
			Run: func(ctx context.Context, app *program.App) error {
				return sidecar.Verify(ctx, verify.DataDir, verify.DropDamaged, app.Logger, app.Stdout)
			},
		},
		"backup": {
			Description: "Takes a backup of the embedded log of the sidecar that runs on a data folder.",
			Settings:    &backup,
			Run:         func(ctx context.Context, _ *program.App) error { return backup.take(ctx) },
		},
		"restore": {
			Description: "Makes a new data folder of a backup. The store gets an id of its own.",
			Settings:    &restore,
			Run: func(context.Context, *program.App) error {
				in, err := os.Open(restore.File)
				if err != nil {
					return err
				}
				defer in.Close()
				return sidecar.Restore(restore.DataDir, in)
			},
		},
	}
}

type verifySettings struct {
	DataDir     string `default:"${data_dir}" help:"The data folder."`
	DropDamaged bool   `help:"Remove the events that cannot be read, and say which."`
}

type fileSettings struct {
	DataDir string `default:"${data_dir}" help:"The data folder."`
	File    string `required:"" placeholder:"FILE" help:"The file with the backup."`
}

// take writes the backup beside the file first, so that the file is whole or not there.
func (s fileSettings) take(ctx context.Context) error {
	part := s.File + ".part"
	out, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(sidecar.Backup(ctx, s.DataDir, out), out.Sync(), out.Close()); err != nil {
		return errors.Join(fmt.Errorf("no backup was taken of the sidecar on %s: %w", s.DataDir, err), os.Remove(part))
	}
	return os.Rename(part, s.File)
}
