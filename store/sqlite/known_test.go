package sqlite

import (
	"strconv"
	"strings"
	"testing"

	"github.com/brig-run/brig"
)

// TestDocumentCacheIsBounded checks that the cache of documents is bounded, regardless
// of the sandboxes' content.
func TestDocumentCacheIsBounded(t *testing.T) {
	for name, n := range map[string]int{"small": 5000, "large": maxKnownDoc} {
		k := &recordCache{}
		for i := range 12 << 20 / n {
			r := &brig.Record{Rev: int64(i)}
			r.Spec.Env = map[string]string{"X": strings.Repeat(strconv.Itoa(i%10), n)}
			doc, data, err := encode(r)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if got, err := k.record(doc, data); err != nil || got.Rev != r.Rev || got.Spec.Env["X"] != r.Spec.Env["X"] {
					t.Fatalf("%s: %+v, %v", name, got, err)
				}
			}
		}
		size := 0
		for doc, d := range k.docs {
			size += len(doc) + len(d.data)
		}
		if size != k.size || size > maxKnown || (size > 0) != (name == "small") {
			t.Errorf("%s: %d bytes are remembered, counted as %d", name, size, k.size)
		}
	}
}
