package gvisor

import (
	"errors"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/brig-run/brig"
)

func creationError(err error) error {
	if errors.Is(err, unix.ENOSPC) || strings.Contains(err.Error(), unix.ENOSPC.Error()) {
		return fullError(err) // errors from a shim are plain text
	}
	return brig.Errorf(brig.CreationFailed, "the sandbox did not start").
		WithHint("run `brig doctor` on the server's machine; the server's log has the cause").Because(err)
}

// lostFile matches gVisor's error about an open file that no longer has its name.
var lostFile = regexp.MustCompile(`failed to walk ("(?:[^"\\]|\\.)*") of type \S+ in mount "[^":]*:((?:[^"\\]|\\.)*)"`)

// restoreError explains why memory could not be restored. gVisor opens the files that programs had
// open by their names again, and others can change volumes meanwhile.
func restoreError(err error) error {
	found := lostFile.FindStringSubmatch(err.Error())
	name := ""
	if found != nil {
		name, _ = strconv.Unquote(found[1])
	}
	switch {
	case found != nil:
		return brig.Errorf(brig.FailedPrecondition, "programs of the sandbox had %q in the volume at %s open, which was moved or removed since", brig.Clip(name, 200), brig.Clip(found[2], 200)).
			WithHint("create it in the volume again, and resume").Because(err)
	case strings.Contains(err.Error(), "containerManager.Restore: EOF"): // the sentry has failed
		return brig.Errorf(brig.FailedPrecondition, "the memory could not be restored; a file that was open in a volume may have been replaced by a directory").
			WithHint("restore the files of the volume, and resume").Because(err)
	}
	return creationError(err)
}

// startError explains why a shim could not start.
func startError(err error, rootless bool) error {
	if rootless && (errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EUSERS) || errors.Is(err, unix.EACCES)) {
		return brig.Errorf(brig.NotInitialized, "this machine does not let an unprivileged user make a user namespace").
			WithHint("run `brig doctor`: it names the setting that forbids it").Because(err)
	}
	return creationError(err)
}

// diskError distinguishes a full disk of the host from other errors.
func diskError(err error, what string) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return fullError(err)
	}
	return creationError(err)
}

func fullError(err error) error {
	return brig.Errorf(brig.Unavailable, "the server's disk is full").
		WithHint("free space in the data folder").Because(err)
}

// tailOf returns the end of a log file in the directory, for an error message
// to the operator.
func (l layout) tailOf(name string) string {
	f, err := os.Open(l.path(name))
	if err != nil {
		return ""
	}
	defer f.Close()
	const maxTail = 4096
	if st, err := f.Stat(); err == nil && st.Size() > maxTail {
		_, _ = f.Seek(-maxTail, io.SeekEnd)
	}
	b, _ := io.ReadAll(io.LimitReader(f, maxTail))
	return strings.TrimSpace(string(b))
}
