// Package testenv holds the external inputs of tests: the programs that were
// built for them, and the size at which they run.
package testenv

import (
	"cmp"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
)

// BinDir is the environment variable with the path of the directory of built
// programs. Default: bin in the root of the module.
const BinDir = "BRIG_BIN_DIR"

// FullSize is the environment variable that makes tests run at full size.
const FullSize = "BRIG_FULL"

// binDir returns the directory with the built programs.
var binDir = sync.OnceValues(func() (string, error) {
	if dir := os.Getenv(BinDir); dir != "" { //nolint:forbidigo // only in tests; no server runs this code
		return filepath.Abs(dir)
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		// The modules of examples and tools are nested; only the main module
		// has arch_test.go.
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			if _, err := os.Stat(filepath.Join(dir, "arch_test.go")); err == nil {
				return filepath.Join(dir, "bin"), nil
			}
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", os.ErrNotExist
		}
		dir = up
	}
})

// Bin returns the path of a program that `make test-programs` builds: "brig",
// or "test/probe" for a program that only tests need. The test fails if the
// program does not exist: tests do not build programs.
func Bin(t testing.TB, name string) string {
	t.Helper()
	dir, err := binDir()
	if err != nil {
		t.Fatalf("find the built programs: %v; set %s", err, BinDir)
	}
	file := filepath.Join(dir, filepath.FromSlash(name))
	if _, err := os.Stat(file); err != nil {
		t.Fatalf("%v; run `make test-programs` first, or set %s to the folder with the programs", err, BinDir)
	}
	return file
}

// IsFull reports whether tests run at full size, as in `make test-all`.
func IsFull() bool {
	return os.Getenv(FullSize) != "" //nolint:forbidigo // only in tests; no server runs this code
}

// Size returns small, or full if tests run at full size.
func Size(small, full int) int {
	if IsFull() {
		return full
	}
	return small
}

// Rotation is the environment variable that selects the share of a long case
// list in a run at small size. The suite sets it from the ISO week.
const Rotation = "BRIG_ROTATION"

// Share returns the cases of a list for this run: all cases at full size, and otherwise about
// limit cases. The selection changes with the rotation, so that consecutive rotations cover all
// cases. Share logs its selection.
func Share[T any](t testing.TB, all []T, limit int) []T {
	t.Helper()
	turns := (len(all) + limit - 1) / limit
	if IsFull() || turns < 2 {
		return all
	}
	rotation, err := strconv.ParseUint(cmp.Or(os.Getenv(Rotation), "0"), 10, 64) //nolint:forbidigo // only in tests; no server runs this code
	if err != nil {
		t.Fatalf("%s: %v", Rotation, err)
	}
	turn := int(rotation % uint64(turns))
	var out []T
	for i := turn; i < len(all); i += turns {
		out = append(out, all[i])
	}
	t.Logf("share %d of %d: %d of %d cases; %s=%d repeats it", turn+1, turns, len(out), len(all), Rotation, rotation)
	return out
}
