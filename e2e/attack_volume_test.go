package e2e

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/internal/diskimage"
	"github.com/brig-run/brig/internal/testenv"
)

// TestVolumeSentryHasNoRights verifies that a sentry that a guest has taken over can do nothing with
// the descriptor of a volume but access the volume's files, even if no system call filter stops it.
// The probe runs with the credentials of a sentry. The control runs it with those of the host's root.
//
//suite:part hostile
func TestVolumeSentryHasNoRights(t *testing.T) {
	needRoot(t)
	run := func(namespace bool) map[string]string {
		image := filepath.Join(t.TempDir(), "one.ext4")
		if err := diskimage.Create(t.Context(), image, 64*brig.MiB, 1000, 0o777); err != nil {
			t.Fatal(err)
		}
		var roots []*os.File
		for _, readOnly := range []bool{false, true} {
			root, err := diskimage.Mount(image, readOnly)
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			roots = append(roots, root)
		}
		cmd := exec.Command(bin(t, "test/probe"), "volume")
		cmd.ExtraFiles = roots
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if namespace {
			all := []syscall.SysProcIDMap{{Size: 1 << 31}}
			cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID
			cmd.SysProcAttr.UidMappings, cmd.SysProcAttr.GidMappings = all, all
			cmd.SysProcAttr.Credential = &syscall.Credential{}
		}
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		thaw(t, roots[0])
		return parseFacts(t, string(out))
	}
	harmless := map[string]bool{"create": true, "name-to-handle": true}
	sentry, root := run(true), run(false)
	for name, result := range sentry {
		if result == "done" && !harmless[name] {
			t.Errorf("a sentry can do %s", name)
		}
	}
	done := 0
	for name, result := range root {
		if result == "done" {
			done++
		}
		t.Logf("%s: sentry %s, root %s", name, sentry[name], result)
	}
	if done < 10 {
		t.Errorf("the control: root can do only %d things: %v", done, root)
	}
}

// thaw ends a freeze of a volume, so that it can be unmounted.
func thaw(t *testing.T, root *os.File) {
	t.Helper()
	const ioctlThaw = 0xc0045878
	_, _, _ = syscall.Syscall(syscall.SYS_IOCTL, root.Fd(), ioctlThaw, 0)
}

// volumeBox creates a sandbox that mounts the volume "shared" at /volume.
func volumeBox(t *testing.T, ctx context.Context, e brig.Service, name string, change func(*brig.Spec)) {
	t.Helper()
	spec := brig.Spec{Name: name, TTL: time.Hour, Volumes: []brig.VolumeMount{{Name: "shared", Path: "/volume"}}}
	if change != nil {
		change(&spec)
	}
	if _, err := e.Create(ctx, spec); err != nil {
		t.Fatal(err)
	}
}

// newSharedVolume returns an engine with the volume "shared", and a context.
func newSharedVolume(t *testing.T, size int64) (*engine.Engine, context.Context) {
	t.Helper()
	needRoot(t)
	e, ctx := newEngine(t)
	if err := e.Options.Volumes.Check(); err != nil {
		t.Skip(err)
	}
	if _, err := e.CreateVolume(ctx, "shared", size); err != nil {
		t.Fatal(err)
	}
	return e, ctx
}

// inVolume runs a Python program in the volume of a sandbox.
func inVolume(t *testing.T, ctx context.Context, e brig.Service, name, program string) string {
	t.Helper()
	var out, errs strings.Builder
	r, err := e.Exec(ctx, name, brig.Command{Argv: []string{"python3", "-c", "import os, stat, sys\nos.chdir('/volume')\n" + program}, Timeout: time.Minute}, brig.IO{Stdout: &out, Stderr: &errs})
	if err != nil || r.ExitCode != 0 {
		t.Fatalf("%s: %+v, %v: %s", program, r, err, errs.String())
	}
	return strings.TrimSpace(out.String())
}

// TestAttackVolumeLinks verifies that no link that a guest makes in a volume leads the API out of the
// volume. The control is a link within the volume.
//
//suite:part hostile
func TestAttackVolumeLinks(t *testing.T) {
	e, ctx := newSharedVolume(t, 64*brig.MiB)
	volumeBox(t, ctx, e, "box", nil)
	secret := plantCanary(t, t.TempDir()+"/canary", 0o644)
	canary := t.TempDir() + "/canary"
	if err := os.WriteFile(canary, []byte(secret), 0o644); err != nil {
		t.Fatal(err)
	}
	inVolume(t, ctx, e, "box", `
targets = ['`+canary+`', '../../../../..`+canary+`', '/proc/self/root`+canary+`', '/proc/1/root`+canary+`', '/proc/self/fd/0', '/proc/self/exe', '/dev/null', '/etc/passwd', '/etc', '/', '..', '/proc/self/cwd']
for i in range(3, 10): targets.append('/proc/self/fd/%d' % i)
for i, t in enumerate(targets): os.symlink(t, 'l%d' % i)
for i in range(45): os.symlink('c%d' % (i+1), 'c%d' % i)
os.symlink('loop', 'loop')
os.mkdir('in'); open('in/file','w').write('inside'); os.symlink('/in/file', 'good')
`)
	files := e.VolumeFiles("shared")
	list, err := files.List(ctx, "/", 256)
	if err != nil {
		t.Fatal(err)
	}
	number := 0
	for _, entry := range list {
		if entry.Type != brig.Symlink || entry.Name == "good" {
			continue
		}
		number++
		for _, p := range []string{entry.Path, entry.Path + "/passwd", entry.Path + "/hostname", entry.Path + "/" + strings.TrimPrefix(canary, "/")} {
			if _, r, err := files.Read(ctx, p); err == nil {
				b, _ := io.ReadAll(r)
				r.Close()
				if string(b) != "attack" { // a path that an earlier write made in the volume
					t.Errorf("%s (%s) leads to %d bytes: %.40q", p, entry.Target, len(b), b)
				}
			} else if brig.KindOf(err) == brig.Internal {
				t.Errorf("read %s: %v", p, err)
			}
			if _, err := files.Write(ctx, p, brig.VolumeWrite{Force: true}, strings.NewReader("attack")); brig.KindOf(err) == brig.Internal && err != nil {
				t.Errorf("write %s: %v", p, err)
			}
			if _, err := files.SetAttributes(ctx, p, brig.VolumeAttributes{Mode: new(uint32)}); brig.KindOf(err) == brig.Internal && err != nil {
				t.Errorf("attributes of %s: %v", p, err)
			}
		}
		if err := files.Remove(ctx, entry.Path); err != nil {
			t.Errorf("remove %s: %v", entry.Path, err)
		}
	}
	if number < 60 {
		t.Errorf("there are only %d links", number)
	}
	if b, err := os.ReadFile(canary); err != nil || string(b) != secret {
		t.Errorf("the file of the host: %q, %v", b, err)
	}
	_, r, err := files.Read(ctx, "/good")
	if err != nil {
		t.Fatalf("the control: %v", err)
	}
	defer r.Close()
	if b, _ := io.ReadAll(r); string(b) != "inside" {
		t.Errorf("the control: %q", b)
	}
}

// TestAttackVolumeRaces verifies that a guest that swaps directories for links while the API reads,
// writes, lists and removes neither leads the API out of the volume nor makes calls fail as internal
// errors.
//
//suite:part hostile
func TestAttackVolumeRaces(t *testing.T) {
	e, ctx := newSharedVolume(t, 64*brig.MiB)
	volumeBox(t, ctx, e, "box", nil)
	outer := t.TempDir()
	secret := plantCanary(t, outer+"/file", 0o644)
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	for _, program := range []string{`
while True:
  for d in ('a', 'b'):
    try:
      os.makedirs('swap/x/y', exist_ok=True); open('swap/file','w').write('inside')
      os.rename('swap', 'aside')
      os.symlink('` + outer + `', 'swap'); os.remove('swap'); os.symlink('/proc/self/root` + outer + `', 'swap'); os.remove('swap')
      os.symlink('aside/x/..', 'swap'); os.remove('swap')
      os.rename('aside', 'swap')
    except OSError:
      os.system('rm -rf swap aside')
`, `
i = 0
while True:
  i += 1
  try:
    os.makedirs('tree/%d/sub/deep' % (i % 7), exist_ok=True); open('tree/%d/sub/deep/f%d' % (i % 7, i),'w').close()
    os.rename('tree/%d/sub' % (i % 7), 'moved%d' % (i % 5)); os.rename('moved%d' % (i % 5), 'tree/%d/sub2' % (i % 7))
  except OSError: pass
  if i % 50 == 0: os.system('rm -rf moved* tree/*/sub2')
`, `
while True:
  try:
    os.mkfifo('kind'); os.remove('kind'); open('kind','w').write('x'); os.remove('kind'); os.mkdir('kind'); os.rmdir('kind')
    os.mknod('kind', 0o140666); os.remove('kind'); os.symlink('kind','kind'); os.remove('kind')
  except OSError:
    for f in (os.remove, os.rmdir):
      try: f('kind')
      except OSError: pass
`} {
		all.Go(func() {
			_, _ = e.Exec(ctx, "box", brig.Command{Argv: []string{"python3", "-c", "import os\nos.chdir('/volume')\n" + program}, Timeout: time.Hour}, brig.IO{})
		})
	}
	files := e.VolumeFiles("shared")
	count := map[string]int{}
	note := func(what string, err error) {
		kind := "done"
		if err != nil {
			kind = string(brig.KindOf(err))
		}
		count[what+" "+kind]++
		if err != nil && brig.KindOf(err) == brig.Internal {
			t.Errorf("%s: %v", what, err)
		}
	}
	for end := time.Now().Add(time.Duration(testenv.Size(2, 10)) * time.Second); time.Now().Before(end) && !t.Failed(); {
		for _, p := range []string{"swap/file", "swap/x/../file", "kind"} {
			_, r, err := files.Read(ctx, p)
			if err == nil {
				b, _ := io.ReadAll(r)
				r.Close()
				if strings.Contains(string(b), secret) {
					t.Fatalf("%s leads out of the volume", p)
				}
			}
			note("read", err)
			_, err = files.Write(ctx, p, brig.VolumeWrite{Force: true}, strings.NewReader("attack"))
			note("write", err)
			_, err = files.Stat(ctx, p)
			note("stat", err)
			_, err = files.SetAttributes(ctx, p, brig.VolumeAttributes{Mode: new(uint32(0o777))})
			note("attributes", err)
		}
		_, err := files.MakeDir(ctx, "swap/x/y/z", brig.VolumeWrite{Force: true})
		note("mkdir", err)
		_, err = files.List(ctx, "/", 20)
		note("list", err)
		note("remove", files.Remove(ctx, "tree"))
		note("remove", files.Remove(ctx, "kind"))
	}
	t.Logf("%v", count)
	if b, err := os.ReadFile(outer + "/file"); err != nil || string(b) != secret {
		t.Errorf("the file of the host: %q, %v", b, err)
	}
	if entries, err := os.ReadDir(outer); err != nil || len(entries) != 1 {
		t.Errorf("the folder of the host: %v, %v", entries, err)
	}
}

// TestAttackVolumeNames verifies that the API lists, reads and removes whatever names and trees a guest
// makes.
//
//suite:part hostile
func TestAttackVolumeNames(t *testing.T) {
	e, ctx := newSharedVolume(t, 256*brig.MiB)
	volumeBox(t, ctx, e, "box", nil)
	inVolume(t, ctx, e, "box", `
for n in [b'new\nline', b'\xff\xfe', b'x'*255, b' ', b'..x', b'\\', b'a"b', 'ü'.encode()*100, b'%2e%2e', b'\x01\x1b[31m']:
  open(n,'w').write('odd')
os.mkfifo('fifo')
os.mknod('socket', stat.S_IFSOCK|0o666)
f = os.open('sparse', os.O_RDWR|os.O_CREAT)
for n in (1<<62, 1<<50, 1<<43):
  try: os.ftruncate(f, n); os.pwrite(f, b'x', n-1); break
  except OSError: pass
os.mkdir('deep'); os.chdir('deep')
for i in range(`+strconv.Itoa(testenv.Size(2000, 10_000))+`): os.mkdir('d'); os.chdir('d')
`)
	files := e.VolumeFiles("shared")
	// gVisor keeps pipes and sockets to itself, so the API does not see them.
	list, err := files.List(ctx, "/", 1)
	if err != nil || len(list) != 12 {
		t.Fatalf("%d entries, %v", len(list), err)
	}
	for _, entry := range list {
		_, r, err := files.Read(ctx, entry.Path)
		if err == nil {
			b, _ := io.ReadAll(io.LimitReader(r, 3))
			r.Close()
			if string(b) != "odd" && entry.Name != "sparse" {
				t.Errorf("%q contains %q", entry.Name, b)
			}
		}
		if odd := entry.Type != brig.RegularFile; (err == nil) == odd || err != nil && brig.KindOf(err) != brig.FailedPrecondition {
			t.Errorf("read %q: %v", entry.Name, err)
		}
	}
	if _, err := files.List(ctx, "/deep", 256); err != nil {
		t.Errorf("list a deep tree: %v", err)
	}
	for _, entry := range list {
		if err := files.Remove(ctx, entry.Path); err != nil {
			t.Errorf("remove %q: %v", entry.Name, err)
		}
	}
	if left := inVolume(t, ctx, e, "box", "print(os.listdir('.'))"); left != "['fifo', 'socket']" {
		t.Errorf("left are %s", left)
	}
	if device := inVolume(t, ctx, e, "box", "import errno\ntry: os.mknod('disk', stat.S_IFBLK|0o666, os.makedev(7,0)); print('made')\nexcept OSError as x: print(errno.errorcode[x.errno])"); device != "EPERM" {
		t.Errorf("a device: %s", device)
	}
}
