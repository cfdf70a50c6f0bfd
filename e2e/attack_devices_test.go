package e2e

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/attack"
)

// nodes is a program that tries to create and open device nodes in each of the given directories.
const nodes = `
import os, stat, sys, json
for kind, major, minor in json.loads(sys.argv[1]):
    for where in sys.argv[2:]:
        name = "%s/node-%s-%d-%d" % (where, kind, major, minor)
        try:
            os.mknod(name, 0o666 | (stat.S_IFBLK if kind == "b" else stat.S_IFCHR), os.makedev(major, minor))
            os.close(os.open(name, os.O_RDWR | os.O_NONBLOCK))
            print("opened", name)
        except OSError as e: print(e.strerror, name)
`

type node struct {
	kind         string
	major, minor int
}

// MarshalJSON implements json.Marshaler.
func (n node) MarshalJSON() ([]byte, error) { return json.Marshal([]any{n.kind, n.major, n.minor}) }

// TestAttackDevices verifies that a program in a sandbox cannot create device
// nodes of any kind.
//
//suite:part hostile
func TestAttackDevices(t *testing.T) {
	needRoot(t)
	p, images := newProvider(t, t.TempDir())
	m := newMachine(t, p, images, "devices", nil)
	list := []node{
		{"c", 1, 1}, {"c", 1, 2}, {"c", 1, 3}, {"c", 1, 4}, {"c", 1, 11}, {"c", 4, 0}, {"c", 5, 1}, {"c", 10, 200}, {"c", 10, 229}, {"c", 10, 232},
		{"c", 29, 0}, {"c", 226, 0}, {"c", 254, 0}, {"b", 1, 0}, {"b", 7, 0}, {"b", 8, 0}, {"b", 8, 1}, {"b", 253, 0}, {"b", 254, 0}, {"b", 259, 0},
	}
	b, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range []string{"user", "root"} {
		res, out, err := m.try(brig.Command{Argv: []string{"python3", "-c", nodes, string(b), "/tmp", "/workspace", "/dev", "/dev/shm", "/opt"}, User: user})
		if err != nil || res.ExitCode != 0 || strings.Count(out, "\n") != 5*len(list) {
			t.Fatalf("as %s: %+v, %v: %s", user, res, err, out)
		}
		for _, n := range list {
			escaped := false
			for line := range strings.Lines(out) {
				escaped = escaped || strings.HasPrefix(line, "opened ") && strings.HasSuffix(line, fmt.Sprintf("-%s-%d-%d\n", n.kind, n.major, n.minor))
			}
			if escaped {
				t.Errorf("as %s: %s", user, out)
			}
			attack.RecordCase("ESC-05", fmt.Sprintf("mknod %s %d %d as %s, in five places", n.kind, n.major, n.minor, user), escaped)
		}
	}
	// The control creates a node for /dev/null on the host, which is harmless.
	out, err := exec.Command("python3", "-c", nodes, `[["c",1,3]]`, t.TempDir()).CombinedOutput()
	seen := err == nil && strings.Contains(string(out), "opened")
	if !seen {
		t.Errorf("on the host: %v: %s", err, out)
	}
	attack.RecordMutant("ESC-05", "mknod c 1 3 on the host", "the sandbox", seen)
}
