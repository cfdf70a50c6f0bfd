package providertest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// volumeDir is the path of the mount in the instances.
const volumeDir = "/volume"

// mounted returns a change of a spec that mounts a volume.
func mounted(id string, readOnly bool) func(*brig.Spec) {
	return func(s *brig.Spec) {
		s.Volumes = []brig.VolumeMount{{Name: "shared", ID: id, Path: volumeDir, ReadOnly: readOnly}}
	}
}

// newVolume returns the ID of a new volume. It skips the test for a provider without volumes.
func (h Harness) newVolume(t *testing.T) string {
	t.Helper()
	if !h.Provider.Capabilities().Volumes {
		t.Skip("the provider mounts no volumes")
	}
	if h.NewVolume == nil {
		t.Fatal("the harness cannot create volumes")
	}
	return h.NewVolume(t)
}

// testNoVolumes checks that a provider without volumes rejects them.
func testNoVolumes(t *testing.T, h Harness) {
	if h.Provider.Capabilities().Volumes {
		t.Skip("the provider mounts volumes")
	}
	spec := h.spec()
	mounted("vol1", false)(&spec)
	in, err := h.Provider.Create(t.Context(), newID(), spec, time.Now().Add(instanceLease))
	if err == nil {
		destroy(t, in)
	}
	unimplemented(t, "an instance with a volume", err)
	if e := brig.AsError(err); err != nil && e.Field != "volumes" {
		t.Errorf("the error names the field %q: %v", e.Field, err)
	}
}

// python returns a command that runs a Python program in the volume.
func python(program string) brig.Command {
	return brig.Command{Argv: []string{"python3", "-c", "import os, mmap, stat\nos.chdir('" + volumeDir + "')\n" + program}}
}

// wantPython runs a Python program that must succeed, and checks its output.
func wantPython(t *testing.T, in brig.Instance, program, want string) {
	t.Helper()
	if a := run(t, in, python(program)); a.ExitCode != 0 || strings.TrimSpace(a.out) != want {
		t.Errorf("%s\nexit code %d, output %q, want %q: %s", program, a.ExitCode, a.out, want, a.err)
	}
}

// testVolume checks that two instances that mount a volume see at once what the other one changes,
// also through descriptors and mappings that they opened before.
func testVolume(t *testing.T, h Harness) {
	id := h.newVolume(t)
	_, one := create(t, h, mounted(id, false))
	_, two := create(t, h, mounted(id, false))
	for _, step := range []struct {
		in            brig.Instance
		program, want string
	}{
		{one, "open('a','w').write('first')", ""},
		{two, "print(open('a').read(), os.stat('a').st_size)", "first 5"},
		{two, "open('a','a').write(' second')", ""},
		{one, "print(open('a').read(), os.stat('a').st_size)", "first second 12"},
		{one, "os.rename('a','b')", ""},
		{two, "print(os.path.exists('a'), open('b').read())", "False first second"},
		{two, "os.truncate('b', 5)", ""},
		{one, "print(open('b').read())", "first"},
		{one, "os.makedirs('d/e'); open('d/e/f','w').write('deep'); os.symlink('e/f','d/link'); os.link('b','d/hard')", ""},
		{two, "print(sorted(os.listdir('d')), open('d/link').read(), os.stat('b').st_nlink)", "['e', 'hard', 'link'] deep 2"},
		{two, "os.rename('d','moved'); os.chmod('moved/e/f',0o640); os.utime('moved/e/f',(5,7))", ""},
		// gVisor shows the metadata that it knew before when it looks a moved file up for the first time.
		{one, "os.stat('moved/e/f'); s=os.stat('moved/e/f'); print(oct(s.st_mode&0o7777), int(s.st_mtime), os.path.exists('d'))", "0o640 7 False"},
		{one, "os.remove('moved/hard'); open('moved/e/f','w').write('replaced')", ""},
		{two, "print(sorted(os.listdir('moved')), open('moved/e/f').read(), os.stat('b').st_nlink)", "['e', 'link'] replaced 1"},
		{two, "os.remove('moved/link'); os.remove('moved/e/f'); os.rmdir('moved/e'); os.rmdir('moved'); os.remove('b')", ""},
		{one, "print(os.listdir('.'))", "[]"},
	} {
		wantPython(t, step.in, step.program, step.want)
	}

	// A program of one instance keeps a descriptor and a mapping of a file, and the other one changes
	// the file.
	watched := make(chan execResult, 1)
	go func() {
		a, _ := try(t.Context(), one, newExecID(), python(`
import time
f = os.open('grow', os.O_RDWR|os.O_CREAT)
os.write(f, b'a'*4096)
m = mmap.mmap(f, 4096)
open('ready','w').close()
while not os.path.exists('grown'): time.sleep(.01)
print(os.fstat(f).st_size, os.pread(f, 3, 8192), m[:3])
m.close(); m = mmap.mmap(f, 12288)
print(m[8192:8195], m[4096:4099])
m[8192:8195] = b'map'; m.flush()
open('mapped','w').close()
while os.path.exists('grow'): time.sleep(.01)
print(os.pread(f, 3, 8192), os.fstat(f).st_size)
`))
		watched <- a
	}()
	wantPython(t, two, `
import time
while not os.path.exists('ready'): time.sleep(.01)
f = os.open('grow', os.O_RDWR)
os.pwrite(f, b'two', 0); os.pwrite(f, b'end', 8192); os.ftruncate(f, 12288)
open('grown','w').close()
while not os.path.exists('mapped'): time.sleep(.01)
print(os.pread(f, 3, 8192))
os.remove('grow')`, "b'map'")
	if a, want := <-watched, "12288 b'end' b'two'\nb'end' b'\\x00\\x00\\x00'\nb'map' 12288\n"; a.out != want {
		t.Errorf("the program with open files printed %q, want %q: %s", a.out, want, a.err)
	}
}

// refusals is a program that tries to change a volume, and prints the attempts that succeed.
const refusals = `
def attempt(name, f):
    try: f()
    except OSError: return
    print(name, end=' ')
r = os.open('file', os.O_RDONLY)
attempt('open', lambda: os.open('file', os.O_WRONLY))
attempt('openrw', lambda: os.open('file', os.O_RDWR))
attempt('opentrunc', lambda: os.open('file', os.O_RDONLY|os.O_TRUNC))
attempt('create', lambda: os.open('new', os.O_RDWR|os.O_CREAT))
attempt('proc', lambda: os.open('/proc/self/fd/%d' % r, os.O_RDWR))
attempt('procwrite', lambda: os.write(os.open('/proc/self/fd/%d' % r, os.O_WRONLY), b'x'))
attempt('write', lambda: os.write(r, b'x'))
attempt('ftruncate', lambda: os.ftruncate(r, 0))
attempt('fallocate', lambda: os.posix_fallocate(r, 0, 1<<20))
attempt('truncate', lambda: os.truncate('file', 0))
attempt('fchmod', lambda: os.fchmod(r, 0o600))
attempt('chmod', lambda: os.chmod('file', 0o600))
attempt('chown', lambda: os.chown('file', os.getuid(), os.getgid()))
attempt('futimes', lambda: os.utime(r, (1, 1)))
attempt('utimes', lambda: os.utime('file', (1, 1)))
attempt('rename', lambda: os.rename('file', 'other'))
attempt('link', lambda: os.link('file', 'hard'))
attempt('symlink', lambda: os.symlink('file', 'soft'))
attempt('unlink', lambda: os.unlink('file'))
attempt('mkdir', lambda: os.mkdir('sub'))
attempt('rmdir', lambda: os.rmdir('dir'))
attempt('mknod', lambda: os.mknod('fifo', stat.S_IFIFO|0o600))
attempt('setxattr', lambda: os.setxattr('file', 'user.x', b'y'))
attempt('mmap', lambda: mmap.mmap(r, 7, mmap.MAP_SHARED, mmap.PROT_READ|mmap.PROT_WRITE))
import ctypes
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
a = libc.mmap(None, ctypes.c_size_t(4096), 1, 1, r, ctypes.c_long(0))
if libc.mprotect(ctypes.c_void_p(a), ctypes.c_size_t(4096), 3) == 0: print('mprotect', end=' ')
if libc.mount(b'none', b'` + volumeDir + `', None, 32, None) == 0: print('remount', end=' ')
`

// testVolumeReadOnly checks that nothing changes a volume through a read-only mount, while another
// instance writes to it. The control runs the same attempts through a mount that allows writes.
func testVolumeReadOnly(t *testing.T, h Harness) {
	id := h.newVolume(t)
	_, writer := create(t, h, mounted(id, false))
	_, reader := create(t, h, mounted(id, true))
	wantPython(t, writer, "open('file','w').write('content'); os.chmod('file',0o666); os.mkdir('dir'); os.utime('file',(5,5))", "")
	const state = "s=os.stat('file'); print(open('file').read(), s.st_size, oct(s.st_mode), s.st_uid, int(s.st_mtime), s.st_nlink, sorted(os.listdir('.')), os.listxattr('file'))"
	before := run(t, writer, python(state)).out
	for _, user := range []string{"user", "root"} {
		cmd := python(refusals)
		cmd.User = user
		if a := run(t, reader, cmd); a.ExitCode != 0 || a.out != "" {
			t.Errorf("through a read-only mount, as %s: exit code %d, %q succeeds: %s", user, a.ExitCode, a.out, a.err)
		}
		if after := run(t, writer, python(state)).out; after != before {
			t.Errorf("as %s it changed: %s, was %s", user, after, before)
		}
	}
	wantPython(t, writer, "open('file','w').write('new')", "")
	wantPython(t, reader, "print(open('file').read())", "new")
	if a := run(t, writer, python(refusals)); strings.Count(a.out, " ") < 15 {
		t.Errorf("the control: only %q succeeds: %s", a.out, a.err)
	}
}

// testVolumeSave checks that a save keeps the mounts of volumes but not the volumes: a restored
// instance sees what others wrote meanwhile, with the files that its programs have open.
func testVolumeSave(t *testing.T, h Harness) {
	id := h.newVolume(t)
	s := h.saver(t)
	_, other := create(t, h, mounted(id, false))
	for name, o := range map[string]brig.SaveOptions{"memory": {}, "files": {FilesOnly: true}} {
		t.Run(name, func(t *testing.T) {
			_, in := create(t, h, mounted(id, false))
			wantPython(t, in, "open('file','w').write('before'); open('/workspace/own','w').write('own')", "")
			save := brig.SaveID(newID())
			saved(t, s, in, save, o)
			wantPython(t, other, "open('file','a').write(' meanwhile'); open('new','w').write('new')", "")
			spec := h.spec()
			mounted(id, false)(&spec)
			next, err := s.Restore(t.Context(), save, newID(), spec, time.Now().Add(instanceLease))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { destroy(t, next) })
			wantPython(t, next, "print(open('file').read(), open('new').read(), open('/workspace/own').read())", "before meanwhile new own")
			wantPython(t, next, "open('file','w').write('after')", "")
			wantPython(t, other, "print(open('file').read())", "after")
		})
	}
	t.Run("other mounts", func(t *testing.T) {
		_, in := create(t, h, mounted(id, true))
		save := brig.SaveID(newID())
		saved(t, s, in, save, brig.SaveOptions{})
		for what, change := range map[string]func(*brig.Spec){
			"no volume": func(*brig.Spec) {}, "more rights": mounted(id, false), "another volume": mounted(h.NewVolume(t), true),
		} {
			spec := h.spec()
			change(&spec)
			next, err := s.Restore(context.WithoutCancel(t.Context()), save, newID(), spec, time.Now().Add(instanceLease))
			if err == nil {
				destroy(t, next)
				t.Errorf("memory is restored with %s", what)
			}
		}
	})
}
