package clock_test

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/brig-run/brig/internal/clock"
)

// clocks are a machine's clocks, which a test can set.
type clocks struct {
	wall    time.Time
	elapsed time.Duration
}

func (c *clocks) read() (time.Time, time.Duration) { return c.wall, c.elapsed }

// pass advances both clocks.
func (c *clocks) pass(d time.Duration) { c.wall, c.elapsed = c.wall.Add(d), c.elapsed+d }

func openClock(t *testing.T, file string, c *clocks) (*clock.Clock, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	got, err := clock.Open(file, c.read, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	return got, &log
}

// The time advances with the system's clock, never moves back with it, and instead advances
// with the monotonic clock. It follows the system's clock again when the system's clock is
// later.
func TestTimeNeverMovesBack(t *testing.T) {
	begin := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	m := &clocks{wall: begin}
	c, log := openClock(t, filepath.Join(t.TempDir(), "clock"), m)
	wantTime := func(want time.Duration) {
		t.Helper()
		if got := c.Now().Sub(begin); got != want {
			t.Errorf("it is %v after the beginning, want %v", got, want)
		}
	}
	wantTime(0)
	m.pass(time.Hour)
	wantTime(time.Hour)
	m.wall = begin // set back
	wantTime(time.Hour)
	m.pass(time.Minute)
	wantTime(time.Hour + time.Minute)
	if c.HasPassed(begin.Add(time.Hour+time.Minute+1)) || !c.HasPassed(begin.Add(time.Hour+time.Minute)) || c.HasPassed(time.Time{}) {
		t.Error("an end is compared with another time")
	}
	if n := strings.Count(log.String(), "behind the highest time"); n != 1 {
		t.Errorf("it is logged %d times: %s", n, log)
	}
	m.wall = begin.Add(2 * time.Hour)
	wantTime(2 * time.Hour)
	m.elapsed += time.Minute // the system's clock stands still
	wantTime(2*time.Hour + time.Minute)
}

// A time that has passed has also passed for the next process, even after a crash and with an
// earlier system clock. Control: without the file, the time has not passed.
func TestExpiryPersistsAcrossRestart(t *testing.T) {
	begin := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	m := &clocks{wall: begin}
	file := filepath.Join(t.TempDir(), "clock")
	c, _ := openClock(t, file, m)
	end := begin.Add(time.Hour)
	m.pass(time.Hour)
	if !c.HasPassed(end) {
		t.Fatal("it has not ended")
	}
	// The process ends without calling Save.
	m = &clocks{wall: begin.Add(-24 * time.Hour)}
	c, log := openClock(t, file, m)
	if !c.HasPassed(end) || c.Now().Before(end) {
		t.Errorf("after a restart with an earlier clock it is %v", c.Now())
	}
	if !strings.Contains(log.String(), "behind the highest time") || !strings.Contains(log.String(), file) {
		t.Errorf("the log has no remedy: %s", log)
	}
	// A time that was only read is kept if it was saved.
	m.pass(time.Hour)
	later := c.Now()
	if err := c.Save(); err != nil {
		t.Fatal(err)
	}
	if c, _ = openClock(t, file, &clocks{wall: begin}); c.Now().Before(later) {
		t.Errorf("it is %v, want %v", c.Now(), later)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if c, _ = openClock(t, file, &clocks{wall: begin}); c.HasPassed(end) {
		t.Error("the control: without the file it is still over")
	}
}

// Other callers can read the time while the file is being written.
func TestWriteDoesNotBlockReaders(t *testing.T) {
	begin := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	m := &clocks{wall: begin}
	file := filepath.Join(t.TempDir(), "clock")
	c, _ := openClock(t, file, m)
	m.pass(time.Hour)
	// The write waits until the other end of this pipe is opened.
	if err := syscall.Mkfifo(file+".new", 0o600); err != nil {
		t.Fatal(err)
	}
	met := make(chan bool)
	go func() { met <- c.HasPassed(begin.Add(time.Hour)) }()
	done := make(chan bool)
	go func() {
		for range 1000 {
			done <- c.Now().Equal(begin.Add(time.Hour)) && !c.HasPassed(begin.Add(2*time.Hour)) && c.HasPassed(begin)
		}
		close(done)
	}()
	for n := 0; ; n++ {
		select {
		case right, more := <-done:
			if !more {
				reader, err := os.Open(file + ".new")
				if err != nil {
					t.Fatal(err)
				}
				defer reader.Close()
				if !<-met {
					t.Error("it has not ended")
				}
				return
			}
			if !right {
				t.Error("another caller gets another answer")
			}
		case <-met:
			t.Fatal("the write did not wait: the test shows nothing")
		case <-time.After(30 * time.Second):
			t.Fatalf("call %d of another caller waits for the write", n)
		}
	}
}

// If the file cannot be written, the clock still opens and advances, and it logs which expiries
// a restart may forget. It stores the time when writing is possible again.
func TestUnwritableFileDoesNotStopClock(t *testing.T) {
	begin := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	m := &clocks{wall: begin}
	file := filepath.Join(t.TempDir(), "clock")
	if err := os.Mkdir(file+".new", 0o700); err != nil { // like a full disk, this prevents the creation of the file
		t.Fatal(err)
	}
	c, log := openClock(t, file, m)
	for n := range 3 {
		m.pass(time.Hour)
		m.wall = begin
		if end := begin.Add(time.Duration(n+1) * time.Hour); !c.HasPassed(end) || c.Now().Before(end) {
			t.Errorf("after %d hours it is %v", n+1, c.Now())
		}
	}
	if n := strings.Count(log.String(), "cannot store the highest time"); n != 1 || !strings.Contains(log.String(), "free space") {
		t.Errorf("it is logged %d times: %s", n, log)
	}
	if err := os.Remove(file + ".new"); err != nil {
		t.Fatal(err)
	}
	if err := c.Save(); err != nil || !strings.Contains(log.String(), "stored again") {
		t.Errorf("%v, %s", err, log)
	}
	if c, _ = openClock(t, file, &clocks{wall: begin}); !c.HasPassed(begin.Add(3 * time.Hour)) {
		t.Errorf("the next process begins at %v", c.Now())
	}
}

// A file that cannot be read is an error and is not treated as an earlier time.
func TestBrokenFileIsAnError(t *testing.T) {
	file := filepath.Join(t.TempDir(), "clock")
	for _, text := range []string{"", "soon\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := clock.Open(file, (&clocks{}).read, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
