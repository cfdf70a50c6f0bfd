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

// sh runs a script that must work, and returns what it says.
func sh(t *testing.T, in brig.Instance, text string) string {
	t.Helper()
	a := run(t, in, brig.Command{Shell: text, Timeout: 6 * wait})
	if a.ExitCode != 0 {
		t.Fatalf("%q: %+v, %q", text, a.Result, a.err)
	}
	return a.out
}

// What is made belongs to whom the path names, and what is there keeps whom
// it belongs to.
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
	e, err := fs.Write(ctx, at("/workspace/ofroot/c/f"), brig.FileWrite{}, strings.NewReader("by the user"))
	if err != nil || e.Owner != "root" {
		t.Errorf("written over: %+v, %v", e, err)
	}
	e, err = fs.Move(ctx, brig.Path{Name: "/workspace/of/c/f", User: "root"}, brig.Path{Name: "/tmp/by/f", User: "root"})
	if err != nil || e.Owner != "user" || sh(t, in, "stat -c %U /tmp/by") != "root\n" {
		t.Errorf("moved: %+v, %v", e, err)
	}
	// The program may shut itself out; its owner is not shut out.
	sh(t, in, "mkdir -p /workspace/shut/in && echo text > /workspace/shut/in/f && chmod 0 /workspace/shut/in/f /workspace/shut/in /workspace/shut")
	if got := content(t, fs, "/workspace/shut/in/f", 0, -1); got != "text\n" {
		t.Errorf("it has %q", got)
	}
	if e, err := fs.Write(ctx, at("/workspace/shut/in/f"), brig.FileWrite{}, strings.NewReader("x")); err != nil || e.Mode != 0 {
		t.Errorf("%+v, %v", e, err)
	}
	if err := fs.Remove(ctx, at("/workspace/shut")); err != nil {
		t.Error(err)
	}
}

// Links are followed as a program in the sandbox would, and lead nowhere but
// into the sandbox.
func testFilesLinks(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	fs, ctx := in.Files(), t.Context()
	sh(t, in, `mkdir -p d/e && echo text > d/f && ln -s d/f file && ln -s d dir && ln -s /workspace/none dangling && ln -s ./loop loop &&
		ln -s ../../../../../../../../etc/hostname up && ln -s ../f d/e/rel && ln -s file twice && ln -s gone/away rest`)
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
	// Neither a move nor a removal follows.
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

// What is no file cannot be read or written, and nobody waits for it.
func testFilesOddTypes(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	fs := in.Files()
	ctx, cancel := timeout(t, wait)
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
	// Names that no text can be are listed as far as they can be.
	sh(t, in, `touch "$(printf 'bad\377name')" "$(printf 'line\nfeed')"`)
	if es, err := fs.List(ctx, at("/workspace"), 1); err != nil || !strings.Contains(names(es), "bad\uFFFDname") || !strings.Contains(names(es), "line\nfeed") {
		t.Errorf("%q, %v", names(es), err)
	}
}

// Files of /proc have no size and have content, and the agent's own are not
// there to be written.
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
		if err := fs.Remove(t.Context(), at(p)); err == nil || brig.KindOf(err) == brig.Internal {
			t.Errorf("remove %s: %v", p, err)
		}
	}
	alive(t, in)
	sh(t, in, "true")
	_, second := create(t, h, nil) // the agent's program is whole
	sh(t, second, "true")
}

// A move between file systems keeps all that is known of what moves, and no
// mount is moved or entered.
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
		_, err := fs.Move(ctx, at(from), at(to))
		refused(t, from+" to "+to, err, brig.InvalidArgument)
	}
	sh(t, in, "test -f /tmp/up/d/m; ls -A /workspace | grep -c . | grep -qx 0")
}

func testFilesMany(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	fs, ctx := in.Files(), t.Context()
	sh(t, in, "mkdir m && cd m && seq 1 10000 | xargs touch")
	begin := time.Now()
	es, err := fs.List(ctx, at("/workspace/m"), 1)
	if err != nil || len(es) != 10_000 {
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
	// At small size, far fewer: guest/agent tests the bound itself.
	most := testenv.Size(2000, brig.MaxEntries)
	sh(t, in, fmt.Sprintf("mkdir -p m/n && cd m && seq 3 %d | xargs touch", most))
	es, err := fs.List(ctx, at("/workspace"), 2)
	if err != nil || len(es) != most {
		t.Errorf("%d entries, %v", len(es), err)
	}
	sh(t, in, "touch m/n/more")
	if es, err := fs.List(ctx, at("/workspace"), 2); err != nil || len(es) != most {
		t.Errorf("not as deep: %d entries, %v", len(es), err)
	}
	if most < brig.MaxEntries {
		return
	}
	_, err = fs.List(ctx, at("/workspace"), 3)
	refused(t, "one more", err, brig.FailedPrecondition)
}

// noise is bytes without a pattern, the same each time.
func noise(n int64) io.Reader { return io.LimitReader(rand.NewChaCha8([32]byte{1}), n) }

func testFilesLarge(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	fs, ctx := in.Files(), t.Context()
	const size = 24 << 20
	sum := sha256.New()
	begin := time.Now()
	e, err := fs.Write(ctx, at("/workspace/large"), brig.FileWrite{}, io.TeeReader(noise(size), sum))
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
	_, err := fs.Write(ctx, at("/workspace/large"), brig.FileWrite{}, noise(64<<20))
	refused(t, "more than there is", err, brig.FailedPrecondition)
	if err != nil && !strings.Contains(err.Error(), "the disk is full") {
		t.Errorf("the message is %v", err)
	}
	if err := fs.Remove(ctx, at("/workspace/large")); err != nil {
		t.Error(err)
	}
	write(t, fs, "/workspace/small", "fits")
}

// Whoever ends a transfer early leaves an agent that serves the next one.
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
	// A context's end is a reader's.
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
	// A refusal is heard while the source has more, and when it has nothing yet.
	begin := time.Now()
	_, err = fs.Write(t.Context(), at("/workspace"), brig.FileWrite{}, noise(1<<40))
	refused(t, "an endless source", err, brig.InvalidArgument)
	never, close := io.Pipe()
	defer close.Close()
	_, err = fs.Write(t.Context(), at("/workspace"), brig.FileWrite{}, never)
	refused(t, "a source that waits", err, brig.InvalidArgument)
	if took := time.Since(begin); took > wait/2 {
		t.Errorf("it took %v", took)
	}
	write(t, fs, "/workspace/next", "next")
	// A machine's end is no end of a file.
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

// Metadata is what was given last, and none of it is made up by the program
// beyond what can be metadata.
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
		_, err := fs.Write(ctx, at("/etc/hostname"), brig.FileWrite{}, strings.NewReader("x"))
		refused(t, "a file of an image that is read-only", err, brig.InvalidArgument)
		return
	}
	// A file of the image gets it, too.
	if e, err := fs.Write(ctx, at("/etc/hostname"), brig.FileWrite{Metadata: map[string]string{"k": "v"}}, strings.NewReader("x")); err != nil || e.Metadata["k"] != "v" {
		t.Errorf("%+v, %v", e, err)
	}
}
