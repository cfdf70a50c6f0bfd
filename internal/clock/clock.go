// Package clock provides a time that never moves back, for the expiry of credentials. A person,
// a time server or the restore of a virtual machine can set the system's clock back. An expired
// credential must not become valid again.
//
// Within a process, the time advances with the monotonic clock, or follows the system's clock
// if that is later. Its highest value is stored in a file, and the next process begins with
// that value. A process stores the value before it reports that a time has passed, and every
// few seconds while the clock is used. Therefore, after a crash, a credential whose expiry was
// never reported ends a few seconds late at most. While no process runs, only the system's
// clock counts.
//
// While the file cannot be written, for example on a full disk, the time still advances in the
// process. The next process begins with the last stored value.
package clock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"
)

const (
	// saveInterval is the interval at which the time is stored while it is used.
	saveInterval = 10 * time.Second
	// tolerance is the largest difference from the system's clock that is not reported. Time
	// servers correct less than that.
	tolerance = time.Minute
	// retryInterval is the minimum time between two attempts to store an expiry while the file
	// cannot be written.
	retryInterval = time.Second
)

// ReadFunc returns the time of the system's clock and the reading of a monotonic clock with an
// arbitrary start.
type ReadFunc func() (wall time.Time, elapsed time.Duration)

// System returns a ReadFunc that reads the system's clocks.
func System() ReadFunc {
	began := time.Now()
	return func() (time.Time, time.Duration) {
		now := time.Now()
		return now.Round(0), now.Sub(began) // Round removes the monotonic reading
	}
}

// Clock is a time that never moves back.
type Clock struct {
	file string
	read ReadFunc
	log  *slog.Logger

	writing sync.Mutex // serializes writes of the file; locked before mu

	mu       sync.Mutex    // guards the fields below; never held while the file is written
	at       time.Time     // the highest time
	elapsed  time.Duration // the monotonic reading at that time
	saved    time.Time     // the time in the file
	reported bool          // the difference to the system's clock was logged
	failing  bool          // the last write failed
	failedAt time.Duration // the monotonic reading at the time of that failure
}

// Open returns the clock whose highest time is stored in a file. It creates the file if
// necessary. The time continues from the stored value. A file that cannot be read is an error.
// A file that cannot be written is only logged, because credentials still expire in this
// process.
func Open(file string, read ReadFunc, log *slog.Logger) (*Clock, error) {
	c := &Clock{file: file, read: read, log: log}
	b, err := os.ReadFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	default:
		if c.saved, err = time.Parse(time.RFC3339Nano, strings.TrimSpace(string(b))); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	c.at = c.saved
	_, c.elapsed = read()
	c.Now()
	_ = c.Save() // Save has logged the error
	return c, nil
}

// Now returns the current time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.advanceLocked()
}

// HasPassed reports whether a time has passed. It stores the time before it returns true.
func (c *Clock) HasPassed(end time.Time) bool {
	if end.IsZero() {
		return false
	}
	c.mu.Lock()
	isOver, stored := !c.advanceLocked().Before(end), !c.saved.Before(end)
	c.mu.Unlock()
	if isOver && !stored {
		_ = c.save(end, retryInterval) // save has logged the error, and the time remains valid in this process
	}
	return isOver
}

// advanceLocked advances the time to the reading of the clocks and returns it.
func (c *Clock) advanceLocked() time.Time {
	wall, elapsed := c.read()
	next := c.at.Add(max(elapsed-c.elapsed, 0))
	if behind := next.Sub(wall); !c.at.IsZero() && behind > tolerance && !c.reported {
		c.reported = true
		c.log.Warn("the system's clock is behind the highest time that this server has seen, so credentials end by the later time",
			"system", wall.UTC(), "highest", next.UTC(), "hint", "correct the system's clock; if the later time was wrong, stop the server and delete "+c.file)
	}
	if wall.After(next) {
		next, c.reported = wall, false
	}
	c.at, c.elapsed = next, elapsed
	return next
}

// Save stores the time if the clock was used since the last write. Of consecutive errors, it
// logs only the first.
func (c *Clock) Save() error {
	c.mu.Lock()
	start := c.at
	c.mu.Unlock()
	return c.save(start, 0)
}

// save stores the time, unless the stored time is not before end or the last write failed less
// than retry ago.
func (c *Clock) save(end time.Time, retry time.Duration) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.mu.Lock()
	at, elapsed := c.at, c.elapsed
	skip := !c.saved.Before(end) || c.failing && elapsed-c.failedAt < retry
	c.mu.Unlock()
	if skip {
		return nil
	}
	err := c.write(at)
	c.mu.Lock()
	before := c.failing
	c.failing, c.failedAt = err != nil, elapsed
	if err == nil {
		c.saved = at
	}
	c.mu.Unlock()
	switch {
	case err != nil && !before:
		c.log.Error("cannot store the highest time: if this server ends and the system's clock is set back, credentials that end from now on become valid again in the next server",
			"file", c.file, "err", err, "hint", "free space on the disk of the data folder; the server tries again")
	case err == nil && before:
		c.log.Info("the highest time can be stored again", "file", c.file)
	}
	return err
}

// Run stores the time every few seconds until ctx ends.
func (c *Clock) Run(ctx context.Context) {
	tick := time.NewTicker(saveInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			_ = c.Save() // Save has logged the error
		}
	}
}

// write writes the file. The caller holds c.writing.
func (c *Clock) write(at time.Time) error {
	tmp := c.file + ".new"
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(at.UTC().Format(time.RFC3339Nano) + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(tmp, c.file)
}
