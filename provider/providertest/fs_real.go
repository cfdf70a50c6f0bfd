package providertest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/testenv"
)

// sh runs a script that must succeed, and returns its output.
func sh(t *testing.T, in brig.Instance, text string) string {
	t.Helper()
	a := run(t, in, brig.Command{Shell: text, Timeout: 6 * waitTimeout})
	if a.ExitCode != 0 {
		t.Fatalf("%q: %+v, %q", text, a.Result, a.err)
	}
	return a.out
}

// testFilesOwners checks that a new file belongs to the path's user, and that
// an existing file keeps its owner.
func testFilesOwners(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	fs, ctx := in.Files(), t.Context()
	for _, user := range []string{"", "user", "root"} {
		p := func(name string) brig.Path { return brig.Path{Name: "/workspace/of" + user + "/" + name, User: user} }
		want := map[bool]string{true: "root", false: "user"}[user == "root"]
		e, err := fs.Write(ctx, p("up/f"), brig.FileWrite{}, strings.NewReader("1"))
		if err != nil || e.Owner != want || e.Group != want {
			t.Errorf("%q wrote %+v, %v", user, e, err)
		}
		if _, err := fs.MakeDir(ctx, p("a/b")); err != nil {
			t.Error(err)
		}
		if _, err := fs.Compose(ctx, []brig.Path{p("up/f")}, p("c/f")); err != nil {
			t.Error(err)
		}
		got := sh(t, in, "cd /workspace/of"+user+" && stat -c '%U:%G %a' . up a a/b c c/f")
		if got != strings.Repeat(want+":"+want+" 755\n", 5)+want+":"+want+" 644\n" {
			t.Errorf("of %q there are %q", user, got)
		}
	}
	e, err := fs.Write(ctx, brig.Path{Name: "/workspace/of/c/f", User: "root"}, brig.FileWrite{}, strings.NewReader("by root"))
	if err != nil || e.Owner != "user" {
		t.Errorf("written over: %+v, %v", e, err)
	}
	e, err = fs.Move(ctx, brig.Path{Name: "/workspace/of/c/f", User: "root"}, brig.Path{Name: "/tmp/by/f", User: "root"})
	if err != nil || e.Owner != "user" || sh(t, in, "stat -c %U /tmp/by") != "root\n" {
		t.Errorf("moved: %+v, %v", e, err)
	}
}

// testFilesRights checks that a file call has the same permissions as a
// program of the path's user. Root has all permissions.
func testFilesRights(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	fs, ctx := in.Files(), t.Context()
	if a := run(t, in, brig.Command{User: "root", Shell: `umask 077; mkdir -p /workspace/r/d /root/r && echo secret > /workspace/r/f && echo secret > /workspace/f &&
		echo secret > /root/r/f && mkdir /workspace/open && chmod 777 /workspace/open && echo secret > /workspace/open/f && chmod 755 /workspace/open`}); a.ExitCode != 0 {
		t.Fatalf("%+v", a)
	}
	sh(t, in, "echo mine > mine; ln -s /root/r/f link; ln -s /root/r dir; mkdir out")
	for what, do := range map[string]func(user string) error{
		"read":                   func(u string) error { return readAs(ctx, fs, u, "/workspace/f") },
		"read below":             func(u string) error { return readAs(ctx, fs, u, "/root/r/f") },
		"read through a link":    func(u string) error { return readAs(ctx, fs, u, "/workspace/link") },
		"read below a link":      func(u string) error { return readAs(ctx, fs, u, "/workspace/dir/f") },
		"read in an open folder": func(u string) error { return readAs(ctx, fs, u, "/workspace/open/f") },
		"stat":                   func(u string) error { _, err := fs.Stat(ctx, brig.Path{Name: "/workspace/r/f", User: u}); return err },
		"list":                   func(u string) error { _, err := fs.List(ctx, brig.Path{Name: "/workspace/r", User: u}, 1); return err },
		"list through a link": func(u string) error {
			_, err := fs.List(ctx, brig.Path{Name: "/workspace/dir", User: u}, 1)
			return err
		},
		"watch": func(u string) error {
			err := fs.Watch(ctx, brig.Path{Name: "/workspace/r", User: u}, true, func(brig.FileChange) error { return io.EOF })
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		},
		"make a directory": func(u string) error {
			_, err := fs.MakeDir(ctx, brig.Path{Name: "/workspace/open/by" + u, User: u})
			return err
		},
		"write": func(u string) error {
			_, err := fs.Write(ctx, brig.Path{Name: "/workspace/open/f", User: u}, brig.FileWrite{}, strings.NewReader("secret"))
			return err
		},
		"write a new file": func(u string) error {
			_, err := fs.Write(ctx, brig.Path{Name: "/etc/by" + u, User: u}, brig.FileWrite{}, strings.NewReader(""))
			return err
		},
		"change a mode": func(u string) error {
			_, err := fs.Write(ctx, brig.Path{Name: "/etc/hostname", User: u}, brig.FileWrite{Mode: 0o666}, strings.NewReader(""))
			return err
		},
		"move out": func(u string) error {
			_, err := fs.Move(ctx, brig.Path{Name: "/workspace/r/d", User: u}, brig.Path{Name: "/workspace/out/of" + u, User: u})
			return err
		},
		"move in": func(u string) error {
			_, err := fs.Move(ctx, brig.Path{Name: "/workspace/mine", User: u}, brig.Path{Name: "/workspace/open/of" + u, User: u})
			return err
		},
		"compose of": func(u string) error {
			if u == "root" {
				return nil // would remove files that other cases read
			}
			_, err := fs.Compose(ctx, []brig.Path{{Name: "/workspace/f", User: u}}, brig.Path{Name: "/workspace/out/all" + u, User: u})
			return err
		},
		"remove":        func(u string) error { return fs.Remove(ctx, brig.Path{Name: "/root/r", User: u}) },
		"remove a tree": func(u string) error { return fs.Remove(ctx, brig.Path{Name: "/workspace/open", User: u}) },
	} {
		t.Run(what, func(t *testing.T) {
			if h.ReadOnlyImage && (what == "write a new file" || what == "change a mode") {
				t.Skip("the image is read-only")
			}
			for _, user := range []string{"", "user"} {
				if err := do(user); brig.KindOf(err) != brig.PermissionDenied {
					t.Errorf("as %q: %v, want that it is denied", user, err)
				}
			}
			if strings.HasPrefix(what, "remove") {
				return // checked below
			}
			if err := do("root"); err != nil {
				t.Errorf("as root: %v", err)
			}
		})
	}
	for _, name := range []string{"/root/r", "/workspace/open"} {
		if err := fs.Remove(ctx, brig.Path{Name: name, User: "root"}); err != nil {
			t.Errorf("root removes %s: %v", name, err)
		}
	}
	// A program may remove its user's access. Root keeps access.
	sh(t, in, "mkdir -p /workspace/shut/in && echo text > /workspace/shut/in/f && chmod 0 /workspace/shut/in/f /workspace/shut/in /workspace/shut")
	if err := readAs(ctx, fs, "", "/workspace/shut/in/f"); brig.KindOf(err) != brig.PermissionDenied {
		t.Errorf("the user reads a file without read permission: %v", err)
	}
	if e, err := fs.Write(ctx, brig.Path{Name: "/workspace/shut/in/f", User: "root"}, brig.FileWrite{}, strings.NewReader("x")); err != nil || e.Mode != 0 {
		t.Errorf("%+v, %v", e, err)
	}
	if err := fs.Remove(ctx, brig.Path{Name: "/workspace/shut", User: "root"}); err != nil {
		t.Error(err)
	}
	// No call can read the memory of the agent, even though the kernel would
	// permit the agent to do so.
	sh(t, in, "ln -s /proc/thread-self/mem memory; ln -s /proc/self self")
	for _, name := range []string{"/proc/self/mem", "/proc/1/mem", "/proc/thread-self/mem", "/proc/1/environ", "/proc/self/maps", "/workspace/memory", "/workspace/self/maps"} {
		for _, user := range []string{"user", "root"} {
			if err := readAs(ctx, fs, user, name); err == nil || brig.KindOf(err) == brig.Internal {
				t.Errorf("%s reads %s: %v", user, name, err)
			}
		}
	}
	// No call can read the environment of a program, because it may contain
	// secrets. A caller that may read files is not necessarily allowed to run
	// programs.
	pid := strings.TrimSpace(sh(t, in, "SECRET=value sleep 600 >/dev/null 2>&1 & echo $!"))
	sh(t, in, "ln -s /proc/"+pid+" program; until grep -q SECRET=value /proc/"+pid+"/environ; do sleep 0.1; done")
	for _, name := range []string{"environ", "mem", "maps", "cmdline", "task/" + pid + "/environ"} {
		for _, dir := range []string{"/proc/" + pid, "/workspace/program"} {
			for _, user := range []string{"user", "root"} {
				from, to := brig.Path{Name: dir + "/" + name, User: user}, brig.Path{Name: "/tmp/taken", User: user}
				_, composed := fs.Compose(ctx, []brig.Path{from}, to)
				_, moved := fs.Move(ctx, from, to)
				for what, err := range map[string]error{"reads": readAs(ctx, fs, user, from.Name), "composes": composed, "moves": moved} {
					if brig.KindOf(err) != brig.PermissionDenied {
						t.Errorf("%s %s %s: %v, want that it is denied", user, what, from.Name, err)
					}
				}
				_, err := fs.Stat(ctx, to)
				refused(t, "what was taken of "+from.Name, err, brig.NotFound)
			}
		}
	}
}

// readAs reads a file to its end.
func readAs(ctx context.Context, fs brig.Files, user, name string) error {
	_, r, err := fs.Read(ctx, brig.Path{Name: name, User: user}, 0, -1)
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = io.Copy(io.Discard, r)
	return err
}

// testFilesLinks checks that links are followed as by a program in the
// sandbox, and never lead out of the sandbox.
func testFilesLinks(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	fs, ctx := in.Files(), t.Context()
	sh(t, in, `mkdir -p d/e && echo text > d/f && ln -s d/f file && ln -s d dir && ln -s /workspace/none dangling && ln -s ./loop loop &&
		ln -s ../../../../../../../../etc/hostname up && ln -s ../f d/e/rel && ln -s file twice && ln -s gone/away rest`)
	for name, want := range map[string]brig.EntryType{"file": brig.RegularFile, "dir": brig.Directory, "dangling": "", "loop": "", "twice": brig.RegularFile} {
		if e, err := fs.Stat(ctx, at("/workspace/"+name)); err != nil || e.TargetType != want || want == brig.Directory && e.TargetMode != 0o755 {
			t.Errorf("%s leads to a %q with mode %o, want %q; %v", name, e.TargetType, e.TargetMode, want, err)
		}
	}
	for name, want := range map[string]string{
		"file": "/workspace/d/f", "dir": "/workspace/d", "dangling": "/workspace/none", "loop": "/workspace/loop",
		"up": "/etc/hostname", "d/e/rel": "/workspace/d/f", "twice": "/workspace/d/f", "rest": "/workspace/gone/away",
	} {
		if e, err := fs.Stat(ctx, at("/workspace/"+name)); err != nil || e.Type != brig.Symlink || e.Target != want || e.Path != "/workspace/"+name {
			t.Errorf("%s: %+v, %v", name, e, err)
		}
	}
	if es, err := fs.List(ctx, at("/workspace/dir"), 5); err != nil || names(es) != "/workspace/dir/e /workspace/dir/e/rel /workspace/dir/f" {
		t.Errorf("through a link: %q, %v", names(es), err)
	}
	if es, err := fs.List(ctx, at("/workspace"), 5); err != nil || strings.Contains(names(es), "/dir/") || strings.Contains(names(es), "/loop/") {
		t.Errorf("links are followed: %q, %v", names(es), err)
	}
	if e, r, err := fs.Read(ctx, at("/workspace/twice"), 0, -1); err != nil || e.Type != brig.RegularFile || e.Size != 5 || r.Close() != nil {
		t.Errorf("%+v, %v", e, err)
	}
	if e, err := fs.Write(ctx, at("/workspace/file"), brig.FileWrite{}, strings.NewReader("new")); err != nil || e.Type != brig.RegularFile || content(t, fs, "/workspace/d/f", 0, -1) != "new" {
		t.Errorf("%+v, %v", e, err)
	}
	if _, err := fs.Write(ctx, at("/workspace/dangling"), brig.FileWrite{}, strings.NewReader("made")); err != nil || content(t, fs, "/workspace/none", 0, -1) != "made" {
		t.Error(err)
	}
	_, _, err := fs.Read(ctx, at("/workspace/loop"), 0, -1)
	refused(t, "a loop", err, brig.FailedPrecondition)
	_, err = fs.List(ctx, at("/workspace/loop"), 1)
	refused(t, "a loop", err, brig.FailedPrecondition)
	refused(t, "into a loop", writeTo(t, fs, "/workspace/loop/x"), brig.FailedPrecondition)
	// Neither a move nor a removal follows a link.
	if e, err := fs.Move(ctx, at("/workspace/dir"), at("/tmp/dir")); err != nil || e.Type != brig.Symlink {
		t.Errorf("%+v, %v", e, err)
	}
	sh(t, in, "mkdir away && ln -s /workspace/d away/link && ln -s / away/root")
	if err := errors.Join(fs.Remove(ctx, at("/workspace/away")), fs.Remove(ctx, at("/workspace/twice"))); err != nil {
		t.Error(err)
	}
	if got := content(t, fs, "/workspace/d/f", 0, -1) + content(t, fs, "/workspace/file", 0, -1); got != "newnew" {
		t.Errorf("left is %q", got)
	}
	sh(t, in, "ln -s /workspace/d/e inner")
	_, err = fs.Move(ctx, at("/workspace/d"), at("/workspace/inner/d"))
	refused(t, "into itself through a link", err, brig.InvalidArgument)
	sh(t, in, "test -f /workspace/d/f && test -d d/e")
}

// testFilesOddTypes checks that special files cannot be read or written, and
// that no call blocks on them.
func testFilesOddTypes(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	fs := in.Files()
	ctx, cancel := timeout(t, waitTimeout)
	defer cancel()
	sh(t, in, "mkfifo pipe && ln -s pipe link; sleep 60 <> pipe >/dev/null 2>&1 &")
	for _, p := range []string{"/workspace/pipe", "/workspace/link", "/dev/null", "/dev/zero", "/dev/full"} {
		_, _, err := fs.Read(ctx, at(p), 0, -1)
		refused(t, "read "+p, err, brig.InvalidArgument)
		_, err = fs.Write(ctx, at(p), brig.FileWrite{}, strings.NewReader("x"))
		refused(t, "write "+p, err, brig.InvalidArgument)
		_, err = fs.Compose(ctx, []brig.Path{at(p)}, at("/tmp/x"))
		refused(t, "compose of "+p, err, brig.InvalidArgument)
		_, err = fs.Compose(ctx, []brig.Path{at("/etc/hostname")}, at(p))
		refused(t, "compose to "+p, err, brig.InvalidArgument)
	}
	if e, err := fs.Stat(ctx, at("/workspace/pipe")); err != nil || e.Type != brig.OtherFile {
		t.Errorf("%+v, %v", e, err)
	}
	_, err := fs.Move(ctx, at("/workspace/pipe"), at("/tmp/pipe"))
	refused(t, "a pipe to another file system", err, brig.InvalidArgument)
	if es, err := fs.List(ctx, at("/tmp"), 2); err != nil || len(es) != 0 {
		t.Errorf("left is %q, %v", names(es), err)
	}
	// Names with invalid UTF-8 or control characters are listed, too.
	sh(t, in, `touch "$(printf 'bad\377name')" "$(printf 'line\nfeed')"`)
	if es, err := fs.List(ctx, at("/workspace"), 1); err != nil || !strings.Contains(names(es), "bad\uFFFDname") || !strings.Contains(names(es), "line\nfeed") {
		t.Errorf("%q, %v", names(es), err)
	}
}

// testFilesProc checks that files in /proc have content although their size is
// 0, and that the agent's files in /proc cannot be written.
func testFilesProc(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	fs := in.Files()
	if got := content(t, fs, "/proc/cpuinfo", 0, -1); !strings.Contains(got, "processor") {
		t.Errorf("cpuinfo has %q", got)
	}
	if got := content(t, fs, "/proc/cpuinfo", 0, 9); len(got) != 9 {
		t.Errorf("the first bytes are %q", got)
	}
	sh(t, in, "ln -s /proc/self/exe exe; ln -s /proc/1/exe init; ln -s /proc/self/oom_score_adj score; ln -s /proc/self/fd fd")
	for _, p := range []string{
		"/proc/self/exe", "/proc/1/exe", "/workspace/exe", "/workspace/init", "/workspace/score", "/proc/self/mem", "/proc/1/mem",
		"/proc/self/fd/0", "/proc/self/fd/3", "/workspace/fd/3", "/proc/sys/kernel/hostname", "/proc/new", "/sys/new", "/proc/self/root/proc/1/exe", "/proc/self/comm", "/proc/self/uid_map", "/proc/sys/net/ipv4/tcp_sack",
		"/proc/sys/kernel/randomize_va_space", "/proc/sys/vm/overcommit_memory", "/proc/sys/vm/max_map_count",
	} {
		if err := writeTo(t, fs, p); err == nil || brig.KindOf(err) == brig.Internal {
			t.Errorf("write %s: %v", p, err)
		} else {
			t.Logf("write %s: %v", p, err)
		}
	}
	for _, p := range []string{"/proc", "/proc/1", "/proc/self/fd", "/tmp", "/sys", "/sys/kernel"} {
		if err := fs.Remove(t.Context(), h.rootPath(p)); err == nil || brig.KindOf(err) == brig.Internal {
			t.Errorf("remove %s: %v", p, err)
		}
	}
	alive(t, in)
	sh(t, in, "true")
	_, second := create(t, h, nil) // the agent's program is unchanged
	sh(t, second, "true")
}

// testFilesMounts checks that a move between file systems keeps all attributes
// of the files, and that no mount is moved or entered.
func testFilesMounts(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	fs, ctx := in.Files(), t.Context()
	sh(t, in, "mkdir -p d/e && echo x > d/f && chmod 4751 d/f && chmod 700 d/e && ln -s ../f d/e/l && touch -d 2001-02-03T04:05:06Z d/f d/e")
	if _, err := fs.Write(ctx, at("/workspace/d/m"), brig.FileWrite{Metadata: map[string]string{"k": "v"}}, strings.NewReader("")); err != nil {
		t.Fatal(err)
	}
	const show = " && stat -c '%n %a %U %Y %F' f e e/l && readlink e/l"
	before := sh(t, in, "cd /workspace/d"+show)
	if _, err := fs.Move(ctx, at("/workspace/d"), at("/tmp/up/d")); err != nil {
		t.Fatal(err)
	}
	after := sh(t, in, "cd /tmp/up/d"+show)
	cut := func(s string) string { return strings.ReplaceAll(s, "\n", "|") }
	if link := strings.Index(before, "e/l"); before[:link] != after[:link] {
		t.Errorf("before %s\nafter  %s", cut(before), cut(after))
	}
	if e, err := fs.Stat(ctx, at("/tmp/up/d/m")); err != nil || e.Metadata["k"] != "v" {
		t.Errorf("%+v, %v", e, err)
	}
	for from, to := range map[string]string{"/tmp": "/workspace/tmp", "/dev": "/workspace/dev", "/proc": "/tmp/proc", "/": "/tmp/root", "/tmp/up": "/tmp/up/d/in"} {
		_, err := fs.Move(ctx, h.rootPath(from), h.rootPath(to))
		// Without root privileges, the kernel may deny changes to / before it
		// checks for a mount.
		if h.Lacks["User"] != "" && brig.KindOf(err) == brig.PermissionDenied {
			continue
		}
		refused(t, from+" to "+to, err, brig.InvalidArgument)
	}
	sh(t, in, "test -f /tmp/up/d/m; ls -A /workspace | grep -c . | grep -qx 0")
}

func testFilesMany(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	fs, ctx := in.Files(), t.Context()
	many := testenv.Size(3000, 10_000) // both take several messages
	sh(t, in, fmt.Sprintf("mkdir m && cd m && seq 1 %d | xargs touch", many))
	begin := time.Now()
	es, err := fs.List(ctx, at("/workspace/m"), 1)
	if err != nil || len(es) != many {
		t.Fatalf("%d entries, %v", len(es), err)
	}
	t.Logf("%d entries in %v", len(es), time.Since(begin))
	for i := 1; i < len(es); i++ {
		if es[i-1].Path >= es[i].Path {
			t.Fatalf("%q before %q", es[i-1].Path, es[i].Path)
		}
	}
	if err := fs.Remove(ctx, at("/workspace/m")); err != nil {
		t.Error(err)
	}
}

func testFilesTooMany(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	fs, ctx := in.Files(), t.Context()
	if err := in.Extend(ctx, time.Now().Add(5*time.Minute)); err != nil {
		t.Fatal(err)
	}
	// At small size, the test uses far fewer files, because guest/agent tests
	// the limit itself.
	maxEntries := testenv.Size(2000, brig.MaxEntries)
	sh(t, in, fmt.Sprintf("mkdir -p m/n && cd m && seq 3 %d | xargs touch", maxEntries))
	es, err := fs.List(ctx, at("/workspace"), 2)
	if err != nil || len(es) != maxEntries {
		t.Errorf("%d entries, %v", len(es), err)
	}
	sh(t, in, "touch m/n/more")
	if es, err := fs.List(ctx, at("/workspace"), 2); err != nil || len(es) != maxEntries {
		t.Errorf("not as deep: %d entries, %v", len(es), err)
	}
	if maxEntries < brig.MaxEntries {
		return
	}
	_, err = fs.List(ctx, at("/workspace"), 3)
	refused(t, "one more", err, brig.FailedPrecondition)
}

// randomReader returns a reader of n pseudo-random bytes, which are the same
// for each call.
func randomReader(n int64) io.Reader { return io.LimitReader(rand.NewChaCha8([32]byte{1}), n) }

func testFilesLarge(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	fs, ctx := in.Files(), t.Context()
	const size = 24 << 20
	sum := sha256.New()
	begin := time.Now()
	e, err := fs.Write(ctx, at("/workspace/large"), brig.FileWrite{}, io.TeeReader(randomReader(size), sum))
	if err != nil || e.Size != size {
		t.Fatalf("%+v, %v", e, err)
	}
	t.Logf("24 MiB in after %v", time.Since(begin))
	want := fmt.Sprintf("%x", sum.Sum(nil))
	if got := sh(t, in, "sha256sum large"); !strings.HasPrefix(got, want) {
		t.Errorf("inside it has %s, want %s", got, want)
	}
	begin = time.Now()
	_, r, err := fs.Read(ctx, at("/workspace/large"), 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	sum.Reset()
	if n, err := io.Copy(sum, r); err != nil || n != size || fmt.Sprintf("%x", sum.Sum(nil)) != want {
		t.Errorf("%d bytes, %v", n, err)
	}
	t.Logf("24 MiB out after %v", time.Since(begin))
}

func testFilesFull(t *testing.T, h Harness) {
	_, in := create(t, h, func(s *brig.Spec) { s.Limits.Disk = 8 * brig.MiB })
	fs, ctx := in.Files(), t.Context()
	_, err := fs.Write(ctx, at("/workspace/large"), brig.FileWrite{}, randomReader(64<<20))
	refused(t, "more than there is", err, brig.FailedPrecondition)
	if err != nil && !strings.Contains(err.Error(), "the disk is full") {
		t.Errorf("the message is %v", err)
	}
	if err := fs.Remove(ctx, at("/workspace/large")); err != nil {
		t.Error(err)
	}
	write(t, fs, "/workspace/small", "fits")
}

// testFilesEarlyEnd checks that the agent serves further calls after a caller
// has ended a transfer early.
func testFilesEarlyEnd(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	fs := in.Files()
	sh(t, in, "head -c 30000000 /dev/zero > large")
	for range 20 {
		_, r, err := fs.Read(t.Context(), at("/workspace/large"), 0, -1)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = r.Read(make([]byte, 10))
		r.Close()
		if _, err := io.Copy(io.Discard, r); err == nil {
			t.Error("a closed file has an end")
		}
	}
	// A reader ends with its context.
	ctx, cancel := context.WithCancel(t.Context())
	_, r, err := fs.Read(ctx, at("/workspace/large"), 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := io.Copy(io.Discard, r); !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
	r.Close()
	// An error arrives even if the source has more data, or has not provided
	// any data yet.
	begin := time.Now()
	_, err = fs.Write(t.Context(), at("/workspace"), brig.FileWrite{}, randomReader(1<<40))
	refused(t, "an endless source", err, brig.InvalidArgument)
	never, close := io.Pipe()
	defer close.Close()
	_, err = fs.Write(t.Context(), at("/workspace"), brig.FileWrite{}, never)
	refused(t, "a source that waits", err, brig.InvalidArgument)
	if took := time.Since(begin); took > promptTimeout {
		t.Errorf("it took %v", took)
	}
	write(t, fs, "/workspace/next", "next")
	// If the instance ends, a read returns an error other than io.EOF.
	_, r, err = fs.Read(t.Context(), at("/workspace/large"), 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := in.Stop(t.Context(), 0, brig.Killed); err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, r); err == nil {
		t.Errorf("%d bytes came without an error", n)
	}
}

// testFilesMetadata checks that the last written metadata takes effect, and
// that a program can forge only valid metadata.
func testFilesMetadata(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	fs, ctx := in.Files(), t.Context()
	for _, dir := range []string{"/workspace", "/tmp", "/home/user"} {
		for _, m := range []map[string]string{
			{"a": "1", "b": "two words", "empty": ""}, {"b": "other"}, nil, {"c.d-e_f": strings.Repeat("v", 4000)},
		} {
			e, err := fs.Write(ctx, at(dir+"/f"), brig.FileWrite{Metadata: m}, strings.NewReader("x"))
			if err != nil || fmt.Sprint(e.Metadata) != fmt.Sprint(m) {
				t.Errorf("%s: wrote %v, have %+v, %v", dir, m, e, err)
			}
			if es, err := fs.List(ctx, at(dir), 1); err != nil || len(es) != 1 || fmt.Sprint(es[0].Metadata) != fmt.Sprint(m) {
				t.Errorf("%s: listed %q, %v", dir, names(es), err)
			}
		}
	}
	if h.ReadOnlyImage {
		_, err := fs.Write(ctx, h.rootPath("/etc/hostname"), brig.FileWrite{}, strings.NewReader("x"))
		refused(t, "a file of an image that is read-only", err, brig.InvalidArgument)
		return
	}
	// Files of the image can have metadata, too.
	if e, err := fs.Write(ctx, h.rootPath("/etc/hostname"), brig.FileWrite{Metadata: map[string]string{"k": "v"}}, strings.NewReader("x")); err != nil || e.Metadata["k"] != "v" {
		t.Errorf("%+v, %v", e, err)
	}
}
