// Package clock keeps a time that never moves back, for the ends of
// credentials. The system's clock can be set back, by a person, by a time
// server or by the restore of a virtual machine. A credential that has ended
// must not become valid again.
//
// Within a process the time advances with the monotonic clock, or follows the
// system's clock if that is later. Its highest value is stored in a file, and
// the next process begins there. A process stores the value before it says that
// a time has passed, and every few seconds while it is used. So after a crash,
// an end that no caller has met is lost by a few seconds at most. The time for
// which no process runs counts only by the system's clock.
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
	// tolerance is the difference to the system's clock that is not reported.
	// Time servers correct less than that.
	tolerance = time.Minute
)

// Reading returns the time of the system's clock and of a clock that is never
// set, which counts from any moment.
type Reading func() (wall time.Time, elapsed time.Duration)

// System returns the reading of the system's clocks.
func System() Reading {
	began := time.Now()
	return func() (time.Time, time.Duration) {
		now := time.Now()
		return now.Round(0), now.Sub(began) // Round removes the monotonic reading
	}
}

// Clock is a time that never moves back.
type Clock struct {
	file string
	read Reading
	log  *slog.Logger

	mu       sync.Mutex    // guards the fields below; held while the file is written
	at       time.Time     // the highest time
	elapsed  time.Duration // the reading that belongs to it
	saved    time.Time     // the time in the file
	reported bool          // the difference to the system's clock was logged
}

// Open returns the clock whose highest time is stored in a file, which it
// creates. The time continues from there.
func Open(file string, read Reading, log *slog.Logger) (*Clock, error) {
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
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advanceLocked()
	return c, c.saveLocked()
}

// Now returns the current time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.advanceLocked()
}

// Ended reports whether a time has passed. It stores the time before it reports
// that.
func (c *Clock) Ended(end time.Time) bool {
	if end.IsZero() {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.advanceLocked().Before(end) {
		return false
	}
	if c.saved.Before(end) {
		if err := c.saveLocked(); err != nil {
			c.log.Error("failed to store the highest time", "file", c.file, "err", err)
		}
	}
	return true
}

// advanceLocked returns the time, after it has advanced to the clocks' reading.
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

// Save stores the time if it was used since it was stored.
func (c *Clock) Save() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.at.After(c.saved) {
		return nil
	}
	return c.saveLocked()
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
			if err := c.Save(); err != nil {
				c.log.Error("failed to store the highest time", "file", c.file, "err", err)
			}
		}
	}
}

func (c *Clock) saveLocked() error {
	at := c.at
	tmp := c.file + ".new"
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(at.UTC().Format(time.RFC3339Nano) + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(tmp, c.file); err != nil {
		return err
	}
	c.saved = at
	return nil
}
