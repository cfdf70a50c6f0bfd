package image

import (
	"testing"

	"github.com/brig-run/brig"
)

// FuzzImport feeds the importer anything: it never touches the canary, leaves
// nothing behind, and blames the caller for what the caller sent.
func FuzzImport(f *testing.F) {
	for _, h := range corpus() {
		if b := h.bytes(f, "/nowhere/canary"); len(b) < 16<<10 {
			f.Add(b)
		}
	}
	f.Add(squeeze(small(f), "zstd"))
	f.Add(squeeze(small(f), "gzip"))
	f.Fuzz(func(t *testing.T, b []byte) {
		a := newArena(t)
		img, err := a.importBytes(t, b)
		if cerr := a.check(); cerr != nil {
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
