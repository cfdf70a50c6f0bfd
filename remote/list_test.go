package remote_test

import (
	"runtime"
	"strings"
	"testing"

	"github.com/brig-run/brig/remote"
)

func TestDecodeListLimitsItems(t *testing.T) {
	type item struct{ A, B, C, D string }
	for _, c := range []struct {
		text string
		want int // -1 means an error
	}{
		{"[]", 0},
		{"null", 0},
		{`[{"A":"x"},{}]`, 2},
		{"[" + strings.Repeat("{},", 99) + "{}]", 100},
		{"[" + strings.Repeat("{},", 100) + "{}]", -1},
		{"{}", -1},
		{"[{}", -1},
		{"[1]", -1},
		{"", -1},
	} {
		list, err := remote.DecodeList[item]([]byte(c.text), 100)
		if (err != nil) != (c.want < 0) || err == nil && len(list) != c.want {
			t.Errorf("%.40s: %d items, %v", c.text, len(list), err)
		}
	}
	// The control: without a limit on the number of items, the same bytes use
	// much more memory.
	long := []byte("[" + strings.Repeat("{},", 1<<20) + "{}]")
	allocated := func(limit int) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		list, err := remote.DecodeList[item](long, limit)
		runtime.ReadMemStats(&after)
		if (err == nil) != (limit > 1<<20) {
			t.Errorf("%d items of at most %d: %v", len(list), limit, err)
		}
		return after.TotalAlloc - before.TotalAlloc
	}
	if n := allocated(100); n > 1<<20 {
		t.Errorf("a list that is too long took %d bytes", n)
	}
	if n := allocated(1 << 30); n < 32<<20 {
		t.Errorf("the control took %d bytes only", n)
	}
}
