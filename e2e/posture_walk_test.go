package e2e

import (
	"strings"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/attack"
)

// TestPostureFiles verifies that a sandbox has no socket, FIFO or device outside /dev, and no
// file that raises privileges when it is executed. A setuid file that root creates has no effect.
//
//suite:part hostile
func TestPostureFiles(t *testing.T) {
	needRoot(t)
	attack.Case(t, "ESC-01", "set-user-ID files of the image and ones that root makes")
	attack.Case(t, "ESC-06", "sockets, fifos and devices anywhere in the file system")
	attack.Mutant(t, "ESC-06", "a socket and a fifo that are there", "their absence")
	p, images := newProvider(t, t.TempDir())
	m := newMachine(t, p, images, "walk", nil)
	if found := m.facts("root", "walk", "/")["walk"]; found != "" {
		t.Errorf("in the file system there are: %s", found)
	}
	m.sh("root", "cp "+probe+" /tmp/raised && chmod 6755 /tmp/raised && cp "+probe+" /opt/raised && chmod 6755 /opt/raised")
	for _, name := range []string{"/tmp/raised", "/opt/raised"} {
		if out := m.sh("user", name+" euid"); strings.TrimSpace(out) != "1000" {
			t.Errorf("%s, setuid root, runs as %s", name, out)
		}
	}
	// The control: the walk detects a FIFO and a socket.
	m.sh("root", "mkfifo /opt/fifo; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"/opt/socket\")'")
	found := m.facts("root", "walk", "/opt")["walk"]
	for _, name := range []string{"/opt/fifo", "/opt/socket"} {
		if !strings.Contains(found, name) {
			t.Errorf("the walk overlooks %s: %s", name, found)
		}
	}
}

// TestPostureDescriptors verifies that a command cannot use the path of a
// descriptor in /proc, which may belong to another process, as its working
// directory or program.
//
//suite:part hostile
func TestPostureDescriptors(t *testing.T) {
	needRoot(t)
	p, images := newProvider(t, t.TempDir())
	m := newMachine(t, p, images, "fds", nil)
	for _, user := range []string{"user", "root"} {
		for fd := range 16 {
			for _, base := range []string{"/proc/self/fd/", "/proc/1/fd/"} {
				dir := base + string("0123456789abcdef"[fd])
				res, out, err := m.try(brig.Command{Argv: []string{"/bin/ls", "-la"}, Dir: dir, User: user})
				if brig.KindOf(err) != brig.InvalidArgument {
					t.Errorf("as %s, a command in %s: %+v, %v: %s", user, dir, res, err, out)
				}
				attack.RecordCase("ESC-07", "a command in "+dir+" as "+user, brig.KindOf(err) != brig.InvalidArgument)
			}
		}
	}
}
