package volume

import (
	"path/filepath"
	"strconv"
)

// RootPath returns a path by which this process reaches the root of a volume.
func RootPath(f *Files) string {
	return filepath.Join("/proc/self/fd", strconv.Itoa(int(f.root.Fd())))
}
