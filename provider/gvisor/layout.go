package gvisor

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/supervise"
)

// layout is the directory of one sandbox. The directory is named after the
// sandbox's ID. The names of all other resources of the sandbox derive from the
// ID, so that leftover resources can be found by name.
type layout struct{ dir string }

func (l layout) path(name string) string { return filepath.Join(l.dir, name) }

// Files in a sandbox's directory.
const (
	orderFile   = "order.json"  // the provider's order to the shim
	configFile  = "config.json" // the OCI configuration; gVisor requires this name
	socketFile  = "shim.sock"
	lockFile    = "lock"      // held by the process that creates the sandbox, then by its shim
	exitFile    = "exit.json" // how the sandbox ended; the last file that a shim writes
	logFile     = "log"       // the output of the sandbox's programs, a journal
	shimLogFile = "shim.log"  // the shim's standard error
	panicFile   = "panic.log"
	stateDir    = "state"   // gVisor's state
	overlayDir  = "overlay" // backs the writable layer
)

// sandboxesDir returns the directory that contains the directories of all
// sandboxes.
func sandboxesDir(dataDir string) string { return filepath.Join(dataDir, "sandboxes") }

// cgroupParent returns the parent cgroup of the sandboxes of a data folder.
// Each data folder on a machine has its own parent cgroup.
func cgroupParent(dataDir string) string {
	sum := sha256.Sum256([]byte(dataDir))
	return "/brig/" + hex.EncodeToString(sum[:6])
}

// shareGroup is the prefix of the parent cgroup of sandboxes that share CPU
// time. No sandbox ID begins with this prefix.
const shareGroup = "share-"

// cgroupOf returns the cgroup of a sandbox. The share is empty for sandboxes of
// older servers.
func cgroupOf(dataDir, share string, id brig.ID) string {
	parent := cgroupParent(dataDir)
	if share != "" {
		sum := sha256.Sum256([]byte(share))
		parent += "/" + shareGroup + hex.EncodeToString(sum[:8])
	}
	return parent + "/" + string(id)
}

// lock acquires the directory's lock, or returns nil if another process holds
// it. The holder of the lock is responsible for the directory.
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

// readJSON decodes a file in the directory. It returns false if the file does
// not exist.
func (l layout) readJSON(name string, v any) (bool, error) {
	return supervise.ReadRecord(l.path(name), v)
}

// writeJSON writes a file atomically.
func (l layout) writeJSON(name string, v any, durable bool) error {
	return supervise.WriteRecord(l.path(name), v, durable)
}
