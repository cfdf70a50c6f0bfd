package e2e

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// newVolumeImage creates the image of a volume in a data folder, without an engine, and returns the
// volume's ID.
func newVolumeImage(t testing.TB, dir string) string {
	t.Helper()
	s := volumesOf(t, dir)
	id := "vol" + strings.ToLower(rand.Text())
	if err := s.Prepare(t.Context(), id, 64*brig.MiB); err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(id); err != nil {
		t.Fatal(err)
	}
	return id
}

// loopsOf returns the images of a data folder with the number of their loop devices. The kernel writes
// " (deleted)" after the name of an image that was removed. For an image on a disk that only another
// mount namespace has, it leaves out the folders above the disk.
func loopsOf(t testing.TB, dir string) map[string]int {
	t.Helper()
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int{}
	for _, name := range files {
		b, err := os.ReadFile(name)
		image := strings.TrimSpace(string(b))
		_, missing := os.Stat(filepath.Join(dir, "volumes", filepath.Base(image)))
		if err == nil && (strings.HasPrefix(image, dir+"/") || missing == nil) {
			out[filepath.Base(image)]++
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
