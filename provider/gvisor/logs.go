package gvisor

import (
	"context"
	"errors"
	"io"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/journal"
)

// Log implements brig.Instance.
func (i *instance) Log(p []byte) error {
	w, err := journal.Open(i.l.path(logFile))
	if err != nil {
		return err
	}
	_, err = w.Write(p)
	return errors.Join(err, w.Close())
}

// Logs implements brig.Instance.
func (i *instance) Logs(context.Context) (io.ReadCloser, error) {
	return journal.Read(i.l.path(logFile))
}

// TimedLogs implements brig.Instance.
func (i *instance) TimedLogs(context.Context) (io.ReadCloser, error) {
	return journal.ReadTimed(i.l.path(logFile), brig.LogTime)
}
