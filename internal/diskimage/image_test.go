package diskimage_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/brig-run/brig/internal/diskimage"
)

const testSize = 64 << 20

func newImage(t *testing.T) string {
	t.Helper()
	if err := diskimage.Check(); err != nil {
		t.Skip(err)
	}
	path := filepath.Join(t.TempDir(), "one.ext4")
	if err := diskimage.Create(t.Context(), path, testSize, 1000, 0o777); err != nil {
		t.Fatal(err)
	}
	return path
}

func mount(t *testing.T, path string) *os.File {
	t.Helper()
	m, err := diskimage.Mount(path, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// inside returns a path in a mount that is in no namespace.
func inside(m *os.File, name string) string {
	return filepath.Join("/proc/self/fd", strconv.Itoa(int(m.Fd())), name)
}

// A new image is empty, belongs to its owner, and outlives its mounts.
func TestContentOutlivesMounts(t *testing.T) {
	path := newImage(t)
	m := mount(t, path)
	var st unix.Stat_t
	if err := unix.Fstat(int(m.Fd()), &st); err != nil || st.Uid != 1000 || st.Gid != 1000 || st.Mode&0o7777 != 0o777 {
		t.Errorf("root: owner %d:%d, mode %o, %v", st.Uid, st.Gid, st.Mode&0o7777, err)
	}
	if list, err := os.ReadDir(inside(m, ".")); err != nil || len(list) > 0 {
		t.Errorf("a new image contains %v, %v", list, err)
	}
	if err := os.WriteFile(inside(m, "a"), []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	m.Close()
	again := mount(t, path)
	if b, err := os.ReadFile(inside(again, "a")); err != nil || string(b) != "kept" {
		t.Errorf("after a new mount: %q, %v", b, err)
	}
	again.Close()
	if b, err := exec.Command("e2fsck", "-fn", path).CombinedOutput(); err != nil && !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("e2fsck: %v: %s", err, b)
	}
}

// A new image has what protects it in a crash of the machine, whatever configuration mke2fs has.
func TestImageHasJournal(t *testing.T) {
	f, err := os.Open(newImage(t))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	super := make([]byte, 1024)
	if _, err := f.ReadAt(super, 1024); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		offset int
		bit    uint32
	}{
		{"has_journal", 0x5c, 0x4}, {"dir_index", 0x5c, 0x20}, {"extent", 0x60, 0x40}, {"64bit", 0x60, 0x80}, {"metadata_csum", 0x64, 0x400}, {"dir_nlink", 0x64, 0x20},
	} {
		if binary.LittleEndian.Uint32(super[c.offset:])&c.bit == 0 {
			t.Errorf("the feature %s is missing", c.name)
		}
	}
	if size := binary.LittleEndian.Uint16(super[0x58:]); size != 256 { // smaller inodes end in 2038
		t.Errorf("inodes have %d bytes", size)
	}
}

// All mounts of one image are one file system. Two would destroy it.
func TestMountsShareOneFileSystem(t *testing.T) {
	path := newImage(t)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	one, two := mount(t, path), mount(t, link)
	var a, b unix.Stat_t
	if err := errors.Join(unix.Fstat(int(one.Fd()), &a), unix.Fstat(int(two.Fd()), &b)); err != nil || a.Dev != b.Dev {
		t.Fatalf("devices %d and %d, %v", a.Dev, b.Dev, err)
	}
	if err := os.WriteFile(inside(one, "a"), []byte("one"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(inside(two, "a")); err != nil || string(got) != "one" {
		t.Errorf("the other mount reads %q, %v", got, err)
	}
}

// The size is an exact bound, and removed files free the disk of the host.
func TestSizeIsExact(t *testing.T) {
	path := newImage(t)
	m := mount(t, path)
	empty, err := diskimage.Used(path)
	if err != nil || empty > 8<<20 {
		t.Errorf("an empty image uses %d bytes, %v", empty, err)
	}
	f, err := os.Create(inside(m, "big"))
	if err != nil {
		t.Fatal(err)
	}
	written, block := 0, bytes.Repeat([]byte{1}, 1<<20)
	for err == nil {
		var n int
		n, err = f.Write(block)
		written += n
		if written > testSize {
			t.Fatalf("%d bytes are in an image of %d", written, testSize)
		}
	}
	if !errors.Is(err, unix.ENOSPC) || written < testSize/2 {
		t.Errorf("after %d bytes: %v", written, err)
	}
	f.Close()
	if err := errors.Join(os.Remove(inside(m, "big")), unix.Syncfs(int(m.Fd()))); err != nil {
		t.Fatal(err)
	}
	// The journal's own blocks are written by now, and the kernel discards freed blocks after a commit.
	var used int64
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if used, err = diskimage.Used(path); err != nil || used <= empty+(8<<20) {
			break
		}
	}
	if err != nil || used > empty+(8<<20) {
		t.Errorf("after the removal the image uses %d bytes, before %d, %v", used, empty, err)
	}
}

// Programs of an image cannot gain rights, and its device files do not work.
func TestMountHasNoSpecialRights(t *testing.T) {
	m := mount(t, newImage(t))
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(m.Fd()), &st); err != nil || st.Flags&unix.ST_NOSUID == 0 || st.Flags&unix.ST_NODEV == 0 {
		t.Errorf("flags %x, %v", st.Flags, err)
	}
	if err := unix.Mknodat(int(m.Fd()), "null", unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))); err != nil {
		t.Fatal(err)
	}
	if f, err := os.Open(inside(m, "null")); err == nil {
		f.Close()
		t.Error("a device file works")
	}
}

// A wrong size or a name that is taken leaves nothing behind.
func TestCreateRejects(t *testing.T) {
	path := newImage(t)
	if err := diskimage.Create(t.Context(), path, testSize, 0, 0o755); !errors.Is(err, os.ErrExist) {
		t.Errorf("an existing image: %v", err)
	}
	small := filepath.Join(t.TempDir(), "small")
	if err := diskimage.Create(t.Context(), small, 4096, 0, 0o755); err == nil {
		t.Error("a small image")
	}
	if _, err := os.Stat(small); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it remains: %v", err)
	}
}
