package engine_test

import (
	"io"
	"strings"
	"testing"

	"github.com/brig-run/brig"
)

// Every file operation resolves a relative path against the working directory of
// commands: the sandbox's Dir, or else /workspace.
func TestRelativePathsUseCommandDirectory(t *testing.T) {
	h := newFixture(t, nil)
	ctx := withRole(t, brig.Member)
	for name, spec := range map[string]brig.Spec{"/workspace": {Name: "plain"}, "/home/user": {Name: "told", Dir: "/home/user"}} {
		if _, err := h.Create(ctx, spec); err != nil {
			t.Fatal(err)
		}
		fs := h.Files(spec.Name)
		pathOf := func(name string) brig.Path { return brig.Path{Name: name} }
		is := func(what, want string) func(*brig.Entry, error) {
			return func(e *brig.Entry, err error) {
				t.Helper()
				if err != nil || e.Path != want {
					t.Errorf("%s: %+v, %v; want %s", what, e, err, want)
				}
			}
		}
		is("write", name+"/a")(fs.Write(ctx, pathOf("a"), brig.FileWrite{}, strings.NewReader("x")))
		is("write with dots", name+"/c")(fs.Write(ctx, pathOf("./b/../c"), brig.FileWrite{}, strings.NewReader("y")))
		is("stat", name+"/a")(fs.Stat(ctx, pathOf("a")))
		is("stat of an absolute path", name+"/a")(fs.Stat(ctx, pathOf(name+"/a")))
		is("mkdir", name+"/d")(fs.MakeDir(ctx, pathOf("d")))
		is("move", name+"/d/a")(fs.Move(ctx, pathOf("a"), pathOf("d/a")))
		is("compose", name+"/d/both")(fs.Compose(ctx, []brig.Path{pathOf("d/a"), pathOf("c")}, pathOf("d/both")))
		is("in the user's home", "/home/user/h")(fs.Write(ctx, pathOf("~/h"), brig.FileWrite{}, strings.NewReader("z")))
		for _, dir := range []string{".", ""} {
			if es, err := fs.List(ctx, pathOf(dir), 2); err != nil || len(es) < 2 || !strings.HasPrefix(es[0].Path, name+"/") {
				t.Errorf("list %q: %v, %v", dir, es, err)
			}
		}
		e, r, err := fs.Read(ctx, pathOf("d/both"), 0, -1)
		is("read", name+"/d/both")(e, err)
		if err == nil {
			if b, err := io.ReadAll(r); err != nil || string(b) != "xy" {
				t.Errorf("read %q, %v", b, err)
			}
			_ = r.Close()
		}
		if err := fs.Remove(ctx, pathOf("d/both")); err != nil {
			t.Errorf("remove: %v", err)
		}
		if _, err := fs.Stat(ctx, pathOf(name+"/d/both")); brig.KindOf(err) != brig.NotFound {
			t.Errorf("removed: %v", err)
		}
	}
}
