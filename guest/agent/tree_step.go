package agent

import (
	"errors"
	"os"
)

// errMoved says that a directory became something else while it was opened.
var errMoved = errors.New("it is not a directory, or not the same any more")

// step opens a directory in another one, and never what a link leads to.
// OpenRoot alone is not enough: it opens with O_DIRECTORY and O_NOFOLLOW, and
// gVisor follows a link then. What was opened must be what was there.
func step(parent *os.Root, name string) (*os.Root, error) {
	before, err := parent.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !before.IsDir() {
		return nil, errMoved
	}
	next, err := parent.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	after, err := next.Stat(".")
	if err == nil && !os.SameFile(before, after) {
		err = errMoved
	}
	if err != nil {
		next.Close()
		return nil, err
	}
	return next, nil
}
