package pebblelog

import (
	"io"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-bus/sluice/internal/private"
)

// privateFS is the machine's file system. It creates files and folders that only their owner may
// access.
type privateFS struct{ vfs.FS }

func (p privateFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return hidden(name)(p.FS.Create(name, c))
}

func (p privateFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	return hidden(name)(p.FS.OpenReadWrite(name, c, o...))
}

// hidden denies other users access to a file that may have been created just now. They cannot have
// opened it before, since they have no access to its folder.
func hidden(name string) func(vfs.File, error) (vfs.File, error) {
	return func(f vfs.File, err error) (vfs.File, error) {
		if err == nil {
			err = os.Chmod(name, private.File)
		}
		if err != nil && f != nil {
			_ = f.Close() // the error says why
			f = nil
		}
		return f, err
	}
}

func (p privateFS) Lock(name string) (io.Closer, error) {
	l, err := p.FS.Lock(name)
	if err == nil {
		err = os.Chmod(name, private.File)
	}
	return l, err
}

func (p privateFS) MkdirAll(dir string, perm os.FileMode) error {
	return p.FS.MkdirAll(dir, perm&private.Folder)
}

// Unwrap implements vfs.FS.
func (p privateFS) Unwrap() vfs.FS { return p.FS }
