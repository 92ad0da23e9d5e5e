package pebblelog

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/sluice-bus/sluice/internal/private"
)

// Owner is the sidecar that runs on a data folder.
type Owner struct {
	PID     int       `json:"pid"`
	NodeID  string    `json:"node_id"`
	Started time.Time `json:"started"`
}

// LockedError refuses a folder that another sidecar runs on.
type LockedError struct {
	Dir   string
	Owner Owner // the zero value if the other has not written it yet
}

func (e *LockedError) Error() string {
	const hint = "stop it or choose another --data-dir"
	if e.Owner.PID == 0 {
		return fmt.Sprintf("data folder %s is in use by another sidecar; %s", e.Dir, hint)
	}
	return fmt.Sprintf("data folder %s is in use by node %q (process %d, since %s); %s",
		e.Dir, e.Owner.NodeID, e.Owner.PID, e.Owner.Started.Format(time.RFC3339), hint)
}

// acquireLock locks the folder while the returned file is open. The operating system unlocks it
// when the process dies. The file stays when the lock is released: if it were removed, two other
// processes could lock two different files of that name.
func acquireLock(dir string, owner Owner) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE, private.File)
	if err != nil {
		return nil, fmt.Errorf("lock the data folder (--data-dir): %w", err)
	}
	taken, err := tryLock(f)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock the data folder %s (--data-dir): %w", dir, err)
	}
	if taken {
		defer f.Close()
		locked := &LockedError{Dir: dir}
		if text, err := io.ReadAll(f); err == nil {
			// The other process may be about to write it; then the owner stays unknown.
			_ = json.Unmarshal(text, &locked.Owner)
		}
		return nil, locked
	}
	text, err := json.Marshal(owner)
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = f.WriteAt(append(text, '\n'), 0)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock the data folder %s (--data-dir): %w", dir, err)
	}
	return f, nil
}
