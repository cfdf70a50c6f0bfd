package cgroup

import (
	"os"
	"path/filepath"
	"testing"
)

// TestFindOwnReturnsLowestLimit checks that FindOwn finds the lowest limit on v1 and v2, in the
// group or a parent, and in a container that sees only its own subtree. It also covers groups
// without any limit.
func TestFindOwnReturnsLowestLimit(t *testing.T) {
	const none = "9223372036854771712\n"
	for what, c := range map[string]struct {
		proc        string
		files       map[string]string
		limit, used int64
	}{
		"v2": {"0::/system.slice/brig.service\n", map[string]string{
			"system.slice/brig.service/memory.max": "1000\n", "system.slice/brig.service/memory.current": "700\n",
			"system.slice/brig.service/memory.stat": "anon 1\ninactive_file 200\n", "system.slice/memory.max": "max\n",
		}, 1000, 500},
		"v2, the one above": {"0::/a/b\n", map[string]string{
			"a/b/memory.max": "max\n", "a/memory.max": "300\n", "a/memory.current": "100\n",
		}, 300, 100},
		"v2 in a container": {"0::/\n", map[string]string{"memory.max": "400\n", "memory.current": "10\n"}, 400, 10},
		"v1": {"5:cpu,memory:/x\n0::/\n", map[string]string{
			"memory/x/memory.limit_in_bytes": "900\n", "memory/x/memory.usage_in_bytes": "600\n",
			"memory/x/memory.stat": "inactive_file 1\ntotal_inactive_file 50\n", "memory/memory.limit_in_bytes": none,
		}, 900, 550},
		"v1 in a container":  {"4:memory:/docker/123\n", map[string]string{"memory/memory.limit_in_bytes": "800\n", "memory/memory.usage_in_bytes": "5\n"}, 800, 5},
		"v1 without a limit": {"4:memory:/x\n", map[string]string{"memory/x/memory.limit_in_bytes": none}, 0, 0},
		"nothing":            {"", nil, 0, 0},
	} {
		dir := t.TempDir()
		proc := filepath.Join(dir, "proc")
		if err := os.WriteFile(proc, []byte(c.proc), 0o600); err != nil {
			t.Fatal(err)
		}
		root := filepath.Join(dir, "root")
		for name, text := range c.files {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		o := findOwn(proc, root)
		if c.limit == 0 {
			if o != nil {
				t.Errorf("%s: %+v", what, o)
			}
			continue
		}
		if o == nil || o.Limit() != c.limit || o.Used() != c.used {
			t.Errorf("%s: %+v, want %d of %d", what, o, c.used, c.limit)
		}
	}
}
