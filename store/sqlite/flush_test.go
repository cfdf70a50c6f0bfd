package sqlite

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brig-run/brig"
)

// TestFlushErrorIsReportedOnce checks that the next writer receives the error of a failed
// flush, exactly once.
func TestFlushErrorIsReportedOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		f := &flusher{log: filepath.Join(file, "no folder")}
		f.schedule()
		f.schedule()
		if err := f.takeError(); err != nil {
			t.Errorf("at once: %v", err)
		}
		time.Sleep(flushDelay)
		synctest.Wait()
		if err := f.takeError(); brig.KindOf(err) != brig.Unavailable {
			t.Errorf("after the delay: %v", err)
		}
		if err := f.takeError(); err != nil {
			t.Errorf("the error was reported again: %v", err)
		}
		f.log = file
		f.schedule()
		time.Sleep(flushDelay)
		synctest.Wait()
		if err := f.takeError(); err != nil {
			t.Errorf("a flush that succeeds: %v", err)
		}
		f.stop()
		f.log = filepath.Join(file, "no folder")
		f.schedule()
		time.Sleep(flushDelay)
		synctest.Wait()
		if err := f.takeError(); err != nil {
			t.Errorf("after the end: %v", err)
		}
	})
}
