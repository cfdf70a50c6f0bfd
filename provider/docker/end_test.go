package docker

import (
	"testing"

	"github.com/moby/moby/api/types/container"
)

func TestNeverNearLimit(t *testing.T) {
	const limit = 64 << 20
	for _, c := range []struct {
		what string
		m    container.MemoryStats
		want bool
	}{
		{"v2, far from it", container.MemoryStats{Limit: limit, Usage: 1 << 20}, true},
		{"v2, out of memory", container.MemoryStats{Limit: limit, Failcnt: 1}, false},
		{"v1, far from it", container.MemoryStats{Limit: limit, MaxUsage: limit / 2}, true},
		{"v1, at the limit, and nobody counted", container.MemoryStats{Limit: limit, MaxUsage: limit}, false},
		{"v1, at the limit but for what is charged at once", container.MemoryStats{Limit: limit, MaxUsage: limit - 2<<20}, false},
		{"v1, counted", container.MemoryStats{Limit: limit, MaxUsage: limit / 2, Failcnt: 3}, false},
		{"no limit known", container.MemoryStats{}, false},
	} {
		if got := neverNearLimit(c.m); got != c.want {
			t.Errorf("%s: %t, want %t", c.what, got, c.want)
		}
	}
}
