// Package supervise has the common parts of all programs that supervise a sandbox: the shim of
// gVisor, the supervisor of plain processes, the init of a container, and a server for
// containers. These parts are the lease, the main program, and the files in the sandbox's
// directory. The package does not cover how a sandbox is started, killed and reached, because
// that differs between the programs. The agent includes this package, so the package needs only
// the standard library.
package supervise

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// ReadRecord decodes a record, which is a JSON file. It returns false if the file does not
// exist.
func ReadRecord(name string, v any) (bool, error) {
	b, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read %s: %w", filepath.Base(name), err)
	}
	if err := json.Unmarshal(b, v); err != nil {
		return false, fmt.Errorf("decode %s: %w", filepath.Base(name), err)
	}
	return true, nil
}

// WriteRecord replaces a record atomically, so that a crash never leaves a partial record. If
// durable is set, this also holds for a power failure.
func WriteRecord(name string, v any, durable bool) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode %s: %w", filepath.Base(name), err)
	}
	return WriteFile(name, b, durable)
}

// WriteFile is like WriteRecord, for arbitrary content.
func WriteFile(name string, b []byte, durable bool) error {
	// Two servers may write the same file, so each uses its own temporary file. Its mode is
	// 0600.
	tmp, err := os.CreateTemp(filepath.Dir(name), ".new-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(name), err)
	}
	_, err = tmp.Write(b)
	if durable {
		err = errors.Join(err, tmp.Sync())
	}
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), name)
	}
	if err != nil {
		os.Remove(tmp.Name())
		return fmt.Errorf("write %s: %w", filepath.Base(name), err)
	}
	return nil
}

// maxSocketPath is the maximum length of a path in a socket address, with a margin.
const maxSocketPath = 100

// SocketPath returns a path for a socket in a directory that fits into a socket
// address, even if the path of the directory is long. The caller calls done when
// it no longer needs the path.
func SocketPath(dir, name string) (path string, done func(), err error) {
	if path = filepath.Join(dir, name); len(path) < maxSocketPath {
		return path, func() {}, nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return "", nil, fmt.Errorf("open folder: %w", err)
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), name), func() { d.Close() }, nil
}
