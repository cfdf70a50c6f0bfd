package image

import (
	"testing"

	"github.com/brig-run/brig"
)

// FuzzImport feeds arbitrary bytes to the importer. It must never touch the
// canary, must leave no files behind, and must report invalid input as the
// caller's error.
func FuzzImport(f *testing.F) {
	for _, h := range corpus() {
		if b := h.bytes(f, "/nowhere/canary"); len(b) < 16<<10 {
			f.Add(b)
		}
	}
	f.Add(compress(smallArchive(f), "zstd"))
	f.Add(compress(smallArchive(f), "gzip"))
	f.Fuzz(func(t *testing.T, b []byte) {
		a := newArena(t)
		img, err := a.importBytes(t, b)
		if cerr := a.checkUnchanged(); cerr != nil {
			t.Error(cerr)
		}
		if err == nil {
			a.checkPlaces(t, img.Digest)
			return
		}
		if e := brig.AsError(err); e.Kind != brig.InvalidArgument || e.Field != "archive" {
			t.Errorf("not the caller's fault: %v", err)
		}
	})
}
