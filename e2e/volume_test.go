package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

var volumeNumber atomic.Int64

// newVolumeImage creates the image of a volume in a data folder, without an engine, and returns the
// volume's ID.
func newVolumeImage(t testing.TB, dir string) string {
	t.Helper()
	s := volumesOf(t, dir)
	id := fmt.Sprintf("vol%d", volumeNumber.Add(1))
	if err := s.Prepare(t.Context(), id, 64*brig.MiB); err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(id); err != nil {
		t.Fatal(err)
	}
	return id
}

// loopsOf returns the images in a data folder with the number of their loop devices. An image that was
// removed has " (deleted)" after its name.
func loopsOf(t testing.TB, dir string) map[string]int {
	t.Helper()
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int{}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if image := strings.TrimSpace(string(b)); err == nil && strings.HasPrefix(image, dir+"/") {
			out[image]++
		}
	}
	return out
}

// wantNoLoops waits until no image in a data folder has a loop device.
func wantNoLoops(t testing.TB, dir string) {
	t.Helper()
	var left map[string]int
	for end := time.Now().Add(promptTimeout); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if left = loopsOf(t, dir); len(left) == 0 {
			return
		}
	}
	t.Errorf("loop devices are left: %v", left)
}

var _ = context.Background
