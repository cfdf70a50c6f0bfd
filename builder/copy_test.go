package builder

import (
	"archive/tar"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// copyCase is a COPY of the files a.txt, dir/b.txt, dir/deep/c.txt and the links dir/link and dir/dangling,
// to the directory of the test, which has the directory there with the mode 1777.
type copyCase struct {
	name, src, dest, mode string
	want                  map[string]os.FileMode // by path; directories and links have no mode here
}

// The script of COPY follows Docker where E2B has no rule of its own: a file becomes the destination, or goes
// into a directory, and the contents of a directory go into the destination. Files that were there, and
// the targets of links, keep their modes.
func TestCopyScript(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can change owners")
	}
	const fresh, set = 0o644, 0o750
	for _, c := range []copyCase{
		{"file", "a.txt", "new", "", map[string]os.FileMode{"new": fresh}},
		{"file with a mode", "a.txt", "new", "0750", map[string]os.FileMode{"new": set}},
		{"file to new directories", "a.txt", "x/y/z", "", map[string]os.FileMode{"x/y/z": fresh}},
		{"file into a new directory", "a.txt", "new/", "", map[string]os.FileMode{"new/a.txt": fresh}},
		{"file into an old directory", "a.txt", "there", "", map[string]os.FileMode{"there/a.txt": fresh}},
		{"directory", "dir", "new", "", map[string]os.FileMode{"new/b.txt": fresh, "new/deep/c.txt": fresh}},
		{"directory with a mode", "dir", "there", "0750", map[string]os.FileMode{"there/b.txt": set, "there/deep/c.txt": set}},
		{"pattern", "dir/*", "there", "0750", map[string]os.FileMode{"there/b.txt": set, "there/deep/c.txt": set}},
		{"everything", ".", "there", "0750", map[string]os.FileMode{"there/a.txt": set, "there/dir/b.txt": set}},
	} {
		for kind, path := range toolPaths(t) {
			t.Run(c.name+" with "+kind, func(t *testing.T) { checkCopy(t, c, path) })
		}
	}
}

// toolPaths returns the directories of the programs with which images run the script.
func toolPaths(t *testing.T) map[string]string {
	t.Helper()
	paths := map[string]string{"GNU tools": os.Getenv("PATH")}
	if busybox, err := exec.LookPath("busybox"); err == nil {
		dir := t.TempDir()
		if out, err := exec.CommandContext(t.Context(), busybox, "--install", "-s", dir).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		paths["busybox"] = dir
	}
	return paths
}

func checkCopy(t *testing.T, c copyCase, path string) {
	t.Helper()
	top := t.TempDir()
	there := filepath.Join(top, "there")
	if err := os.Mkdir(there, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(there, os.ModeSticky|0o777); err != nil {
		t.Fatal(err)
	}
	target := filepath.Join(top, "target")
	if err := os.WriteFile(target, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	runCopyScript(t, c, top, target, path)
	for name, mode := range c.want {
		info, err := os.Stat(filepath.Join(top, name))
		if err != nil {
			t.Error(err)
			continue
		}
		if owner := info.Sys().(*syscall.Stat_t); info.Mode().Perm() != mode || owner.Uid != 1234 || owner.Gid != 1234 {
			t.Errorf("%s has the mode %v and the owner %d:%d", name, info.Mode(), owner.Uid, owner.Gid)
		}
	}
	for name, want := range map[string]os.FileMode{there: os.ModeDir | os.ModeSticky | 0o777, target: 0o600} {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if owner := info.Sys().(*syscall.Stat_t); info.Mode() != want || owner.Uid != 0 {
			t.Errorf("%s, which was there, has the mode %v and the owner %d", filepath.Base(name), info.Mode(), owner.Uid)
		}
	}
}

// runCopyScript runs the script as a build does, with links to target in the archive.
func runCopyScript(t *testing.T, c copyCase, top, target, path string) {
	t.Helper()
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, h := range []tar.Header{
		{Name: "a.txt", Typeflag: tar.TypeReg, Mode: 0o644},
		{Name: "dir/b.txt", Typeflag: tar.TypeReg, Mode: 0o644},
		{Name: "dir/deep/c.txt", Typeflag: tar.TypeReg, Mode: 0o644},
		{Name: "dir/link", Typeflag: tar.TypeSymlink, Linkname: target},
		{Name: "dir/dangling", Typeflag: tar.TypeSymlink, Linkname: "nowhere"},
	} {
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(top, "step")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "archive"), archive.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	src, kind := source(c.src)
	if kind == "file" && c.dest[len(c.dest)-1] == '/' {
		kind = "into"
	}
	shell, err := exec.LookPath("sh")
	if _, serr := os.Stat(filepath.Join(path, "sh")); serr == nil {
		shell, err = filepath.Join(path, "sh"), nil
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), shell, "-c", copyScript, "sh", dir, src, filepath.Join(top, c.dest), "1234:1234", c.mode, kind)
	cmd.Env = []string{"PATH=" + path}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatal(fmt.Errorf("%w: %s", err, out))
	}
}
