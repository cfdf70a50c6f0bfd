package guest

import (
	"context"
	"io"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/journal"
)

// LogFile is the name of the journal that a sandbox's supervisor writes on this host. It implements
// the methods of brig.Instance that concern the log, and brig.LogFollower. The log of a supervisor
// on another host is read and appended with requests to the supervisor (see SupervisedInstance).
type LogFile string

// Log implements brig.Instance. It appends to the journal, and may be called while the supervisor
// writes to the same file.
func (l LogFile) Log(p []byte) error {
	return journal.Append(string(l), p)
}

// Logs implements brig.Instance.
func (l LogFile) Logs(context.Context) (io.ReadCloser, error) {
	return journal.Read(string(l))
}

// TimedLogs implements brig.Instance.
func (l LogFile) TimedLogs(context.Context) (io.ReadCloser, error) {
	return journal.ReadTimed(string(l), brig.LogTime)
}

// FollowLog implements brig.LogFollower.
func (l LogFile) FollowLog(_ context.Context, timed bool) (io.ReadCloser, error) {
	var stamp func(time.Time) string
	if timed {
		stamp = brig.LogTime
	}
	return journal.Follow(string(l), stamp)
}
