package providertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// packedPaths maps the paths packed from an instance to their descriptions.
type packedPaths map[string]string

func pack(t *testing.T, in brig.Instance, dir string) packedPaths {
	t.Helper()
	out := packedPaths{}
	err := in.Pack(t.Context(), dir, func(n brig.Node, r io.Reader) error {
		what := fmt.Sprintf("%s %o", n.Type, n.Mode)
		switch {
		case n.Skipped != "":
			what = "skipped: " + n.Skipped
		case n.Type == brig.Symlink:
			what = "link " + n.Target
		case n.Type == brig.RegularFile:
			b, err := io.ReadAll(r)
			if err != nil {
				return err
			}
			what += " " + string(b)
		}
		out[n.Path] = what
		return nil
	})
	if err != nil {
		t.Fatalf("pack: %v", err)
	}
	return out
}

// unpack unpacks nodes. The content of each file is its path.
func unpack(ctx context.Context, in brig.Instance, o brig.UnpackOptions, nodes ...brig.Node) error {
	return in.Unpack(ctx, "/workspace", o, func(put func(brig.Node, io.Reader) error) error {
		for _, n := range nodes {
			if err := put(n, strings.NewReader(n.Path)); err != nil {
				return err
			}
		}
		return nil
	})
}

func file(path string) brig.Node {
	return brig.Node{Path: path, Type: brig.RegularFile, Mode: 0o640, Size: int64(len(path)), Modified: time.Unix(1e9, 0)}
}

func directory(path string) brig.Node {
	return brig.Node{Path: path, Type: brig.Directory, Mode: 0o750}
}

func link(path, target string) brig.Node {
	return brig.Node{Path: path, Type: brig.Symlink, Mode: 0o777, Target: target}
}

func testTrees(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	if err := unpack(t.Context(), in, brig.UnpackOptions{}, file("a"), directory("d"), file("d/b"), file("d/c")); err != nil {
		t.Fatal(err)
	}
	got := pack(t, in, "/workspace")
	want := packedPaths{"a": "file 640 a", "d/b": "file 640 d/b", "d/c": "file 640 d/c"}
	for p, what := range want {
		if got[p] != what {
			t.Errorf("%s came out as %q, want %q", p, got[p], what)
		}
	}
	if len(got) != 4 || !strings.HasPrefix(got["d"], "directory") {
		t.Errorf("all that came out: %v", got)
	}
	// Both callbacks can stop the transfer.
	stop := errors.New("no more")
	if err := in.Pack(t.Context(), "/workspace", func(brig.Node, io.Reader) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("pack was stopped: %v", err)
	}
	err := in.Unpack(t.Context(), "/workspace", brig.UnpackOptions{}, func(func(brig.Node, io.Reader) error) error { return stop })
	if !errors.Is(err, stop) {
		t.Errorf("unpack was stopped: %v", err)
	}
	// Unread content is skipped.
	n := 0
	if err := in.Pack(t.Context(), "/workspace", func(brig.Node, io.Reader) error { n++; return nil }); err != nil || n != 4 {
		t.Errorf("%d nodes, %v", n, err)
	}
}

// testTreesOwners checks the owner of a tree, the mode of each node, and
// special files.
func testTreesOwners(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	odd := "odd\xff\nname"
	if a := run(t, in, script("mkdir there; echo old > a; ln -s /etc d")); a.ExitCode != 0 {
		t.Fatalf("%+v", a)
	}
	err := unpack(t.Context(), in, brig.UnpackOptions{}, file("a"), directory("d"), file("d/b"), link("l", "/etc/passwd"), file(odd), file("there"))
	if err != nil {
		t.Fatal(err)
	}
	a := run(t, in, script(`stat -c '%n %u:%g %a %Y' a d/b; stat -c '%U %a' d there; readlink l; stat -c %U l; test -L d || echo no link`))
	if a.out != "a 1000:1000 640 1000000000\nd/b 1000:1000 640 1000000000\nuser 750\nuser 640\n/etc/passwd\nuser\nno link\n" {
		t.Errorf("%q, %q", a.out, a.err)
	}
	if a := run(t, in, script("mkfifo pipe; mkdir -p deep; cd deep; for i in $(seq 140); do mkdir d; cd d; done; python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('/workspace/socket')\"; truncate -s 17G /workspace/sparse; chmod 0 /workspace/d/b; chmod 0 /workspace/d; ln /workspace/a /workspace/hard")); a.ExitCode != 0 {
		t.Fatalf("%+v", a)
	}
	got := pack(t, in, "/workspace")
	deep := "deep" + strings.Repeat("/d", 128)
	for p, want := range map[string]string{
		"pipe": "skipped: it is a pipe", "socket": "skipped: it is a socket", "sparse": "skipped: it is too large", deep: "skipped: it is too deep",
		odd: "file 640 " + odd, "l": "link /etc/passwd", "hard": "file 640 a", "d": "directory 0", "d/b": "file 0 d/b",
	} {
		if got[p] != want {
			t.Errorf("%.20q came out as %q, want %q", p, got[p], want)
		}
	}
	if _, exists := got["l/x"]; exists || got[deep+"/d"] != "" {
		t.Error("more came out than there is")
	}
}

// testTreesSealed checks that no user can change a sealed tree.
func testTreesSealed(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	if err := unpack(t.Context(), in, brig.UnpackOptions{Sealed: true}, file("a"), directory("d"), file("d/b")); err != nil {
		t.Fatal(err)
	}
	a := run(t, in, script(`for f in a d/b new d/new; do echo x > $f && echo wrote $f; done; rm -rf a d; mv a b; mkdir x; chmod 777 a . d; cat a d/b; exit 0`))
	if a.out != "ad/b" {
		t.Errorf("%q", a.out)
	}
	// The control: an unsealed tree can be changed.
	_, in = create(t, h, nil)
	if err := unpack(t.Context(), in, brig.UnpackOptions{}, file("a")); err != nil {
		t.Fatal(err)
	}
	if a := run(t, in, script(`rm a && echo gone`)); a.out != "gone\n" {
		t.Errorf("%q, %q", a.out, a.err)
	}
}

// testTreesConfined checks that Unpack rejects every kind of node that leads
// out of its tree.
func testTreesConfined(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	for what, nodes := range map[string][]brig.Node{
		"parent":           {file("../x")},
		"absolute":         {file("/tmp/x")},
		"parent inside":    {directory("d"), file("d/../../tmp/x")},
		"through a link":   {link("out", "/tmp"), file("out/x")},
		"directory beyond": {link("out", "/tmp"), directory("out/x")},
		"link beyond":      {link("out", "/tmp"), link("out/x", "y")},
		"through a file":   {file("f"), file("f/x")},
		"no directory":     {file("d/x")},
		"NUL":              {file("a\x00b")},
		"nothing":          {file("")},
		"itself":           {directory(".")},
		"a device":         {{Path: "x", Type: brig.OtherFile}},
		"a long name":      {file(strings.Repeat("n", 300))},
	} {
		if err := unpack(t.Context(), in, brig.UnpackOptions{}, nodes...); brig.KindOf(err) != brig.InvalidArgument {
			t.Errorf("%s: %v", what, err)
		}
		if a := run(t, in, script("ls -A /tmp; ls / /etc | grep -x x; find /workspace -mindepth 1 -delete; exit 0")); a.out != "" {
			t.Errorf("%s: planted %q", what, a.out)
		}
	}
}

// testTreesRace checks that a program that replaces directories by links
// during a pack does not gain access to files that it could not read.
func testTreesRace(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	const canary = "only root may read this"
	if _, err := in.Files().Write(t.Context(), brig.Path{Name: "/root/vault/canary", User: "root"}, brig.FileWrite{Mode: 0o600}, strings.NewReader(canary)); err != nil {
		t.Fatal(err)
	}
	if a := run(t, in, brig.Command{User: "root", Shell: "chmod 700 /root /root/vault"}); a.ExitCode != 0 {
		t.Fatalf("%+v", a)
	}
	if a := run(t, in, script("cat /root/vault/canary")); a.ExitCode == 0 {
		t.Fatal("the user may read it anyway")
	}
	const swap = `
import ctypes, os
libc = ctypes.CDLL(None)
os.makedirs("real/canary.d", exist_ok=True)
open("real/canary", "w").write("mine")
os.symlink("/root/vault", "link")
os.symlink("/root/vault/canary", "fake")
open("file", "w").write("mine")
while True:
    os.rename("real", "spare"); os.rename("link", "real"); os.rename("real", "link"); os.rename("spare", "real")
    os.rename("file", "other"); os.rename("fake", "file"); os.rename("file", "fake"); os.rename("other", "file")
`
	p, err := in.Start(t.Context(), "swap", brig.Command{Argv: []string{"python3", "-c", swap}, Dir: "/workspace"}, brig.Streams{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	links, files := 0, 0
	for deadline := time.Now().Add(3 * time.Second); time.Now().Before(deadline); {
		for path, what := range pack(t, in, "/workspace") {
			if strings.Contains(what, canary) {
				t.Fatalf("%s came out as %q", path, what)
			}
			switch {
			case strings.HasPrefix(what, "link"):
				links++
			case strings.HasPrefix(what, "file"):
				files++
			}
		}
	}
	if links == 0 || files == 0 {
		t.Errorf("it saw %d links and %d files: nothing was raced", links, files)
	}
}

// testQuiet checks that Quiet ends processes even if they ignore signals, and
// that the instance continues.
func testQuiet(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	p, err := in.Start(t.Context(), "deaf", brig.Command{Shell: `trap 'echo heard >> heard' TERM; (trap '' TERM; : > up; sleep 1000 & sleep 1000) & while :; do sleep 0.1; done`}, brig.Streams{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	run(t, in, script(`until [ -e up ]; do sleep 0.05; done`)) // the process has set its traps
	if err := in.Quiet(t.Context(), time.Second); err != nil {
		t.Fatal(err)
	}
	a := run(t, in, script(`cat heard; for p in /proc/[0-9]*; do tr '\0' ' ' < $p/cmdline; echo; done | grep -c '^sleep'`))
	if a.out != "heard\n0\n" {
		t.Errorf("%q, %q", a.out, a.err)
	}
}

// testChanged checks that Changed finds the files that were written outside
// the tree since a given time.
func testChanged(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	must := func(line string) {
		t.Helper()
		if a := run(t, in, brig.Command{Shell: line}); a.ExitCode != 0 {
			t.Fatalf("%s: %+v", line, a)
		}
	}
	must(`mkdir -p /home/user/d/e; echo old > /home/user/old; echo old > /home/user/d/again; touch -d 2001-01-01 /home/user/old`)
	time.Sleep(time.Second) // clocks of remote hosts are known only within the response latency
	since := time.Now()
	must(`echo new > /home/user/d/new; touch -d 2001-02-03 /home/user/d/new; echo new > /home/user/d/again; ln -s /etc/passwd /home/user/d/e/link
mkfifo /home/user/d/pipe; echo t > /tmp/t; ln -s /home/user /tmp/home; echo n > /home/user/no`)
	got := packedPaths{}
	err := in.Changed(t.Context(), []string{"/home/user/d", "/home/user/old", "/home/user/none", "/none/at/all", "/tmp/t", "/tmp/home/no", "/tmp/home"}, since, func(n brig.Node, r io.Reader) error {
		what := string(n.Type)
		switch {
		case n.Skipped != "":
			what = "skipped: " + n.Skipped
		case n.Type == brig.Symlink:
			what += " " + n.Target
		case n.Type == brig.RegularFile:
			b, err := io.ReadAll(r)
			if err != nil {
				return err
			}
			what += " " + string(b)
		}
		got[n.Path] = what
		return nil
	})
	want := packedPaths{
		"home/user/d": "directory", "home/user/d/e": "directory", "home/user/d/new": "file new\n", "home/user/d/again": "file new\n",
		"home/user/d/e/link": "symlink /etc/passwd", "home/user/d/pipe": "skipped: it is a pipe", "home/user/none": "skipped: nothing is there",
		"none/at/all": "skipped: nothing is there", "tmp/t": "file t\n", "tmp/home/no": "skipped: it is behind a link, or behind what is no directory",
		"tmp/home": "symlink /home/user",
	}
	if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("changed\n%v, %v, want\n%v", got, err, want)
	}
}
