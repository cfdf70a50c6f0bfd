package gvisor

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// layout is the folder of one sandbox. Its name is the sandbox's id, and the
// name of everything else that belongs to it derives from that, so that what
// nobody owns can be found by comparing names.
type layout struct{ dir string }

func (l layout) path(name string) string { return filepath.Join(l.dir, name) }

// The files in a sandbox's folder.
const (
	orderFile   = "order.json"  // what the provider asks of the shim
	configFile  = "config.json" // the OCI configuration, of gVisor's choosing
	socketFile  = "shim.sock"
	lockFile    = "lock"      // held by whoever brings the sandbox to life, then by its shim
	exitFile    = "exit.json" // how it ended; the last thing that a shim writes
	logFile     = "log"       // what its programs wrote, a journal
	shimLogFile = "shim.log"  // the shim's own last words
	panicFile   = "panic.log"
	stateDir    = "state"   // gVisor's own
	overlayDir  = "overlay" // backs the writable layer
)

// sandboxesDir holds the folders of all sandboxes.
func sandboxesDir(dataDir string) string { return filepath.Join(dataDir, "sandboxes") }

// cgroupParent is the cgroup above those of a data folder's sandboxes. Two
// data folders on one machine never meet.
func cgroupParent(dataDir string) string {
	sum := sha256.Sum256([]byte(dataDir))
	return "/brig/" + hex.EncodeToString(sum[:6])
}

// lock takes the folder's lock, which says that somebody looks after it. It
// returns nil when somebody else does.
func (l layout) lock() (*os.File, error) {
	f, err := os.OpenFile(l.path(lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return f, nil
	}
	f.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, nil
	}
	return nil, fmt.Errorf("lock %s: %w", l.dir, err)
}

// readJSON reads a file of ours; it reports false when there is none.
func (l layout) readJSON(name string, v any) (bool, error) {
	b, err := os.ReadFile(l.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read %s: %w", name, err)
	}
	if err := json.Unmarshal(b, v); err != nil {
		return false, fmt.Errorf("decode %s: %w", name, err)
	}
	return true, nil
}

// writeJSON writes a file that is there whole or not at all, whatever dies.
func (l layout) writeJSON(name string, v any, durable bool) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	tmp := l.path("." + name)
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	_, err = f.Write(b)
	if durable {
		err = errors.Join(err, f.Sync())
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(tmp, l.path(name))
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}
