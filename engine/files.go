package engine

import (
	"fmt"
	"path"
	"strings"

	"github.com/brig-run/brig"
)

// The bounds of files that go in with a program.
const (
	maxFiles    = 1000
	maxFileSize = 64 * brig.MiB // bytes of all of them
)

func checkFiles(files []brig.File) error {
	if len(files) > maxFiles {
		return brig.InvalidField("files", "%d files are too many", len(files)).WithHint("give at most %d", maxFiles)
	}
	size := 0
	for i, f := range files {
		size += len(f.Data)
		clean := path.Clean(f.Path)
		if f.Path == "" || clean == "." || path.IsAbs(f.Path) || clean == ".." || strings.HasPrefix(clean, "../") ||
			strings.ContainsRune(f.Path, 0) || len(f.Path) > 1024 || strings.HasSuffix(f.Path, "/") {
			return brig.InvalidField(fmt.Sprintf("files[%d].path", i), "%q cannot be a file in %s", clip(f.Path), workspaceDir).
				WithHint("give a path relative to it that stays inside, for example data/in.csv")
		}
		if f.Mode > 0o777 {
			return brig.InvalidField(fmt.Sprintf("files[%d].mode", i), "%o is not a file's mode", f.Mode).WithHint("give permission bits, for example 0644 (420)")
		}
	}
	if size > maxFileSize {
		return brig.InvalidField("files", "%d bytes are too many", size).WithHint("give at most %s", brig.FormatBytes(maxFileSize))
	}
	return nil
}
