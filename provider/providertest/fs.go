package providertest

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// at returns a path of the user.
func at(name string) brig.Path { return brig.Path{Name: name} }

// write writes a file, and fails the test on an error.
func write(t *testing.T, fs brig.Files, name, text string) *brig.Entry {
	t.Helper()
	e, err := fs.Write(t.Context(), at(name), brig.FileWrite{}, strings.NewReader(text))
	if err != nil {
		t.Fatalf("write %s: %v", name, err)
	}
	return e
}

// content reads a part of a file, and fails the test on an error.
func content(t *testing.T, fs brig.Files, name string, from, n int64) string {
	t.Helper()
	_, r, err := fs.Read(t.Context(), at(name), from, n)
	if err != nil {
		t.Fatalf("read %s: %v", name, err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatalf("read %s: %v", name, err)
	}
	return string(b)
}

// refused checks that a call failed with the expected kind of error, because
// of a path.
func refused(t *testing.T, what string, err error, want brig.Kind) {
	t.Helper()
	if e := brig.AsError(err); e == nil || e.Kind != want || want == brig.InvalidArgument && e.Field != "path" {
		t.Errorf("%s: %v (%s), want %s", what, err, brig.KindOf(err), want)
	}
}

func testFiles(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	fs, ctx := in.Files(), t.Context()
	begin := time.Now().Add(-time.Minute)
	e, err := fs.Write(ctx, at("/workspace/deep/down/a.txt"), brig.FileWrite{}, strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	for what, got := range map[string]*brig.Entry{"Write": e, "Stat": must(fs.Stat(ctx, at("/workspace/deep/down/a.txt")))} {
		if got == nil || got.Name != "a.txt" || got.Path != "/workspace/deep/down/a.txt" || got.Type != brig.RegularFile || got.Size != 5 ||
			got.Mode != 0o644 || got.Owner != "user" || got.Group != "user" || got.Target != "" || got.Modified.Before(begin) || len(got.Metadata) != 0 {
			t.Errorf("%s: %+v", what, got)
		}
	}
	if got := content(t, fs, "/workspace/deep/down/a.txt", 0, -1); got != "hello" {
		t.Errorf("it has %q", got)
	}
	if e, err := fs.MakeDir(ctx, at("/workspace/x/y/z")); err != nil || e.Type != brig.Directory || e.Path != "/workspace/x/y/z" || e.Mode != 0o755 || e.Owner != "user" {
		t.Errorf("made %+v, %v", e, err)
	}
	if e, err := fs.Stat(ctx, at("/workspace/x/y")); err != nil || e.Type != brig.Directory || e.Owner != "user" {
		t.Errorf("above it: %+v, %v", e, err)
	}
	if e, err := fs.Stat(ctx, at("/")); err != nil || e.Type != brig.Directory || e.Name != "/" || e.Path != "/" {
		t.Errorf("the root: %+v, %v", e, err)
	}
	for _, p := range []string{"/workspace/x/y/z", "/workspace", "/", "~"} {
		_, err := fs.MakeDir(ctx, at(p))
		refused(t, "make "+p+" again", err, brig.AlreadyExists)
	}
	const file = "/workspace/deep/down/a.txt"
	for what, f := range map[string]func() error{
		"make a file":        func() error { _, err := fs.MakeDir(ctx, at(file)); return err },
		"make below a file":  func() error { _, err := fs.MakeDir(ctx, at(file+"/x")); return err },
		"write below a file": func() error { return writeTo(t, fs, file+"/x") },
		"write to a dir":     func() error { return writeTo(t, fs, "/workspace") },
		"read a dir":         func() error { _, _, err := fs.Read(ctx, at("/workspace"), 0, -1); return err },
		"list a file":        func() error { _, err := fs.List(ctx, at(file), 1); return err },
		"remove the root":    func() error { return fs.Remove(ctx, at("/workspace/..")) },
		"another's home":     func() error { _, err := fs.Stat(ctx, at("~root/x")); return err },
	} {
		refused(t, what, f(), brig.InvalidArgument)
	}
	for what, f := range map[string]func() error{
		"stat":          func() error { _, err := fs.Stat(ctx, at("/missing")); return err },
		"stat in file":  func() error { _, err := fs.Stat(ctx, at(file+"/x")); return err },
		"read":          func() error { _, _, err := fs.Read(ctx, at("/missing"), 0, -1); return err },
		"list":          func() error { _, err := fs.List(ctx, at("/missing"), 1); return err },
		"move":          func() error { _, err := fs.Move(ctx, at("/missing"), at("/tmp/x")); return err },
		"compose":       func() error { _, err := fs.Compose(ctx, []brig.Path{at("/missing")}, at("/tmp/x")); return err },
		"what moved is": func() error { _, err := fs.Stat(ctx, at("/tmp/x")); return err },
	} {
		refused(t, what, f(), brig.NotFound)
	}
	if _, err := fs.Stat(ctx, at("/missing")); err == nil || !strings.Contains(err.Error(), "path '/missing' does not exist") {
		t.Errorf("the message is %v", err)
	}
	for range 2 { // a missing path is not an error
		if err := fs.Remove(ctx, at("/workspace/deep")); err != nil {
			t.Errorf("remove: %v", err)
		}
	}
	_, err = fs.Stat(ctx, at(file))
	refused(t, "what is removed", err, brig.NotFound)
}

// must drops an error, because the test then fails at the zero value.
func must[T any](v T, _ error) T { return v }

func writeTo(t *testing.T, fs brig.Files, name string) error {
	_, err := fs.Write(t.Context(), at(name), brig.FileWrite{}, strings.NewReader("planted"))
	return err
}

func testFilesPaths(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	fs := in.Files()
	for name, want := range map[string]string{
		"a": "/home/user/a", "~/b": "/home/user/b", "./c/../d": "/home/user/d", "~/../user/e": "/home/user/e",
		"/workspace//x/./y/../f": "/workspace/x/f", "sub/": "/home/user/sub", "spaced name\n\t'\"<&>\\": "/home/user/spaced name\n\t'\"<&>\\",
		"ünï/日本": "/home/user/ünï/日本", "-rf": "/home/user/-rf", "*": "/home/user/*",
	} {
		e := write(t, fs, name, name)
		if e.Path != want || e.Name != want[strings.LastIndex(want, "/")+1:] {
			t.Errorf("%q is %q (%q), want %q", name, e.Path, e.Name, want)
		}
		if got := content(t, fs, want, 0, -1); got != name {
			t.Errorf("%q has %q", want, got)
		}
	}
	for _, home := range []string{"", "~", "~/", "."} {
		if e, err := fs.Stat(t.Context(), at(home)); err != nil || e.Path != "/home/user" {
			t.Errorf("%q is %+v, %v", home, e, err)
		}
		if h.Lacks["User"] != "" {
			continue // there is no root account
		}
		if e, err := fs.Stat(t.Context(), brig.Path{Name: home, User: "root"}); err != nil || e.Path != "/root" {
			t.Errorf("root's %q is %+v, %v", home, e, err)
		}
	}
	if !h.Real {
		return
	}
	_, err := fs.Stat(t.Context(), at(strings.Repeat("n", 300)))
	refused(t, "a long name", err, brig.InvalidArgument)
	_, err = fs.Stat(t.Context(), at(strings.Repeat("n/", 3000)))
	refused(t, "a long path", err, brig.InvalidArgument)
	_, err = fs.Stat(t.Context(), at("a\x00b"))
	refused(t, "a NUL", err, brig.InvalidArgument)
}

func testFilesRanges(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	fs := in.Files()
	data := strings.Repeat("0123456789abcdef", 70_000) // larger than one frame
	write(t, fs, "/workspace/f", data)
	size := int64(len(data))
	for _, c := range []struct{ from, n, want int64 }{
		{0, -1, size}, {0, 0, 0}, {0, 10, 10}, {7, 9, 9}, {size - 3, 10, 3}, {size, -1, 0}, {size, 5, 0}, {size + 99, -1, 0},
		{size + 99, 5, 0}, {100, -1, size - 100}, {1, 1 << 62, size - 1}, {300_000, 400_000, 400_000},
	} {
		e, r, err := fs.Read(t.Context(), at("/workspace/f"), c.from, c.n)
		if err != nil {
			t.Errorf("%+v: %v", c, err)
			continue
		}
		b, err := io.ReadAll(r)
		if from := min(c.from, size); err != nil || e.Size != size || string(b) != data[from:from+c.want] {
			t.Errorf("%+v: %d bytes of %d, %v", c, len(b), e.Size, err)
		}
		if err := errors.Join(r.Close(), r.Close()); err != nil {
			t.Errorf("close: %v", err)
		}
	}
}

func testFilesWrite(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	fs, ctx := in.Files(), t.Context()
	p := at("/workspace/f")
	for i, c := range []struct {
		text string
		give brig.FileWrite
		mode uint32
	}{
		{"long text at first", brig.FileWrite{}, 0o644},
		{"short", brig.FileWrite{Mode: 0o750}, 0o750},
		{"", brig.FileWrite{}, 0o750}, // keeps the mode
		{"x", brig.FileWrite{Mode: 0o600}, 0o600},
	} {
		e, err := fs.Write(ctx, p, c.give, strings.NewReader(c.text))
		if err != nil || e.Mode != c.mode || e.Size != int64(len(c.text)) {
			t.Errorf("%d: %+v, %v", i, e, err)
		}
		if got := content(t, fs, "/workspace/f", 0, -1); got != c.text {
			t.Errorf("%d: %q, want %q", i, got, c.text)
		}
	}
	if e, err := fs.Write(ctx, at("/workspace/new"), brig.FileWrite{Mode: 0o700}, strings.NewReader("")); err != nil || e.Mode != 0o700 {
		t.Errorf("a new one: %+v, %v", e, err)
	}
}

// broken is a source that fails after its data.
type broken struct {
	data io.Reader
	err  error
}

func (b broken) Read(p []byte) (int, error) {
	if n, err := b.data.Read(p); err == nil {
		return n, nil
	}
	return 0, b.err
}

// testFilesSource checks that an error of the source is never treated as the
// end of the file.
func testFilesSource(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	fs := in.Files()
	for i, cause := range []error{errors.New("the line is cut"), io.ErrUnexpectedEOF, io.ErrClosedPipe} {
		name := fmt.Sprintf("/workspace/f%d", i)
		if _, err := fs.Write(t.Context(), at(name), brig.FileWrite{}, broken{strings.NewReader("half"), cause}); !errors.Is(err, cause) {
			t.Errorf("%v, want %v", err, cause)
		}
		// The data before the error soon appears in the file.
		for end := time.Now().Add(waitTimeout); content(t, fs, name, 0, -1) != "half"; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("what was written is not there")
			}
		}
	}
	alive(t, in)
}

func names(es []*brig.Entry) string {
	var out []string
	for _, e := range es {
		out = append(out, e.Path)
	}
	return strings.Join(out, " ")
}

func testFilesList(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	fs, ctx := in.Files(), t.Context()
	for _, f := range []string{"b", "a/2", "a/1/x", "a-b", "c/.hidden"} {
		write(t, fs, "/workspace/d/"+f, f)
	}
	if _, err := fs.MakeDir(ctx, at("/workspace/d/empty")); err != nil {
		t.Fatal(err)
	}
	for depth, want := range map[int]string{
		1:   "a a-b b c empty",
		2:   "a a-b a/1 a/2 b c c/.hidden empty",
		3:   "a a-b a/1 a/1/x a/2 b c c/.hidden empty",
		999: "a a-b a/1 a/1/x a/2 b c c/.hidden empty",
	} {
		es, err := fs.List(ctx, at("/workspace/d"), depth)
		if got := strings.ReplaceAll(names(es), "/workspace/d/", ""); err != nil || got != want {
			t.Errorf("depth %d: %q, %v, want %q", depth, got, err, want)
		}
		for _, e := range es {
			if isDir := slices.Contains([]string{"a", "1", "c", "empty"}, e.Name); isDir != (e.Type == brig.Directory) || e.Owner != "user" {
				t.Errorf("%+v", e)
			}
		}
	}
	if es, err := fs.List(ctx, at("/workspace/d/empty"), 5); err != nil || len(es) != 0 {
		t.Errorf("an empty one: %q, %v", names(es), err)
	}
}

func testFilesMove(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	fs, ctx := in.Files(), t.Context()
	write(t, fs, "/workspace/a", "a")
	write(t, fs, "/workspace/d/x/y", "y")
	for _, c := range []struct{ from, to, file, text string }{
		{"/workspace/a", "/workspace/new/dir/b", "/workspace/new/dir/b", "a"},
		{"/workspace/d", "/workspace/e", "/workspace/e/x/y", "y"},
		{"/workspace/new/dir/b", "/workspace/e/x/y", "/workspace/e/x/y", "a"}, // replaces a file
		{"/workspace/e/x/y", "/workspace/e/x/y", "/workspace/e/x/y", "a"},     // onto itself
		{"/workspace/e", "/tmp/there", "/tmp/there/x/y", "a"},                 // another file system
		{"/tmp/there/x/y", "~/home", "/home/user/home", "a"},                  // and back
		{"/home/user/home", "/workspace/-weird '", "/workspace/-weird '", "a"},
	} {
		e, err := fs.Move(ctx, at(c.from), at(c.to))
		if err != nil {
			t.Fatalf("%s to %s: %v", c.from, c.to, err)
		}
		if got := content(t, fs, c.file, 0, -1); got != c.text || e.Owner != "user" {
			t.Errorf("%s to %s: %q, %+v", c.from, c.to, got, e)
		}
		if c.from != c.to {
			_, err = fs.Stat(ctx, at(c.from))
			refused(t, c.from, err, brig.NotFound)
		}
	}
	write(t, fs, "/workspace/file", "f")
	write(t, fs, "/workspace/dir/sub/f", "f")
	for _, c := range [][2]string{
		{"/workspace/file", "/workspace/dir"}, {"/workspace/dir", "/workspace/file"}, {"/workspace/dir", "/workspace/dir/sub/in"},
		{"/workspace/file", "/workspace/file/x"},
	} {
		_, err := fs.Move(ctx, at(c[0]), at(c[1]))
		refused(t, fmt.Sprint(c), err, brig.InvalidArgument)
	}
	if got := content(t, fs, "/workspace/file", 0, -1) + content(t, fs, "/workspace/dir/sub/f", 0, -1); got != "ff" {
		t.Errorf("they have %q", got)
	}
}

func testFilesCompose(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	fs, ctx := in.Files(), t.Context()
	big := strings.Repeat("x", 2<<20)
	write(t, fs, "/workspace/p/1", big)
	write(t, fs, "/workspace/p/2", "")
	write(t, fs, "/workspace/p/3", "end")
	e, err := fs.Compose(ctx, []brig.Path{at("/workspace/p/3"), at("/workspace/p/1"), at("/workspace/p/2"), at("/workspace/p/3")}, at("/workspace/q/all"))
	if err != nil || e.Path != "/workspace/q/all" || e.Size != int64(len(big)+6) || e.Owner != "user" || e.Mode != 0o644 {
		t.Fatalf("%+v, %v", e, err)
	}
	if got := content(t, fs, "/workspace/q/all", 0, -1); got != "end"+big+"end" {
		t.Errorf("it has %d bytes", len(got))
	}
	if es, err := fs.List(ctx, at("/workspace"), 3); err != nil || strings.Contains(names(es), "/p/") || strings.Contains(names(es), "brig") {
		t.Errorf("left are %q, %v", names(es), err)
	}
	write(t, fs, "/workspace/r", "r")
	write(t, fs, "/workspace/s", "s")
	for what, c := range map[string]struct {
		from []brig.Path
		to   string
		want brig.Kind
	}{
		"into a source":   {[]brig.Path{at("/workspace/r"), at("/workspace/s")}, "/workspace/s", brig.InvalidArgument},
		"into a dir":      {[]brig.Path{at("/workspace/r")}, "/workspace/q", brig.InvalidArgument},
		"of a dir":        {[]brig.Path{at("/workspace/r"), at("/workspace/q")}, "/workspace/n", brig.InvalidArgument},
		"below a file":    {[]brig.Path{at("/workspace/r")}, "/workspace/s/n", brig.InvalidArgument},
		"of what is none": {[]brig.Path{at("/workspace/r"), at("/workspace/none")}, "/workspace/n", brig.NotFound},
	} {
		_, err := fs.Compose(ctx, c.from, at(c.to))
		refused(t, what, err, c.want)
	}
	es, err := fs.List(ctx, at("/workspace"), 1)
	if got := names(es); err != nil || strings.Contains(got, "/n") || strings.Contains(got, "brig") || content(t, fs, "/workspace/r", 0, -1)+content(t, fs, "/workspace/s", 0, -1) != "rs" {
		t.Errorf("after refusals there are %q, %v", got, err)
	}
	if e, err := fs.Compose(ctx, []brig.Path{at("/workspace/r")}, at("/workspace/s")); err != nil || e.Size != 1 || content(t, fs, "/workspace/s", 0, -1) != "r" {
		t.Errorf("over another: %+v, %v", e, err)
	}
}

// testFilesConcurrent checks that concurrent writes, some to the same file, do
// not mix their data.
func testFilesConcurrent(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	fs := in.Files()
	sums := map[string][32]byte{}
	var mu sync.Mutex
	var writers sync.WaitGroup
	for i := range 24 {
		writers.Go(func() {
			name := fmt.Sprintf("/workspace/new/%d/f", i%16)
			data := bytes.Repeat([]byte{byte(i % 16)}, 300_000+i%16)
			if _, err := fs.Write(t.Context(), at(name), brig.FileWrite{}, bytes.NewReader(data)); err != nil {
				t.Errorf("write %s: %v", name, err)
			}
			mu.Lock()
			sums[name] = sha256.Sum256(data)
			mu.Unlock()
		})
	}
	writers.Wait()
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		if sha256.Sum256([]byte(content(t, fs, name, 0, -1))) != sums[name] {
			t.Errorf("%s is not what was written", name)
		}
	}
}
