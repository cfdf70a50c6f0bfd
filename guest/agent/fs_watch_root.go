package agent

import (
	"errors"
	"syscall"
	"time"

	"github.com/brig-run/brig/internal/nofollow"
)

// rootInterval is how often a watch checks that its path still leads to its
// directory. The kernel does not report a moved parent, a changed link in the path, a file system
// mounted on it, or, while a descriptor is open, the removal of the directory. Programs of a
// sandbox cannot mount below it.
const rootInterval = time.Second

// guardRoot ends a watch when its path no longer leads to the directory that it led to at the
// start.
func (t *watcher) guardRoot(events *queue, ended <-chan struct{}) {
	tick := time.NewTicker(rootInterval)
	defer tick.Stop()
	for {
		select {
		case <-ended:
			return
		case <-tick.C:
		}
		if err := t.checkRoot(); err != nil {
			events.close(err)
			return
		}
	}
}

// goneError returns the error of a watch that can no longer report changes.
func (t *watcher) goneError(reason string) error {
	return newFailure("gone", "path", "path '%s': %s", t.root, reason)
}

// checkRoot returns an error if the path no longer leads to the watched directory. It returns nil
// if the user may no longer follow the path, because the watch still reports changes.
func (t *watcher) checkRoot() error {
	var there, watched nofollow.Stat
	err := t.as(func() (err error) {
		if err = syscall.Stat(t.root, &there.Stat_t); err == nil {
			watched, err = t.dir.Self()
		}
		return err
	})
	errno, _ := errors.AsType[syscall.Errno](err)
	switch {
	case errno == syscall.ENOENT || errno == syscall.ENOTDIR || errno == syscall.ELOOP:
		return t.goneError("the watched directory was removed or moved")
	case err == nil && (there.Dev != watched.Dev || there.Ino != watched.Ino):
		return t.goneError("another file took the place of the watched directory")
	}
	return nil
}

// checkEvent returns an error if the watch can no longer report the changes of a directory after an
// event.
func (t *watcher) checkEvent(d *watchedDir, mask uint32) error {
	switch {
	case mask&syscall.IN_UNMOUNT != 0:
		return t.goneError("the file system of a watched directory was unmounted")
	case d.name != "":
		return nil
	case mask&(syscall.IN_DELETE_SELF|syscall.IN_IGNORED) != 0:
		return t.goneError("the watched directory was removed or moved")
	case mask&syscall.IN_MOVE_SELF != 0:
		return t.checkRoot()
	}
	return nil
}
