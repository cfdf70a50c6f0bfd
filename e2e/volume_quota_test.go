package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// TestVolumeSizeIsExact verifies that neither a sandbox nor the API can exceed the size of a volume or its
// number of files, and that both can write again after files were removed.
//
//suite:part hostile
func TestVolumeSizeIsExact(t *testing.T) {
	e, ctx := newSharedVolume(t, 16*brig.MiB)
	volumeBox(t, ctx, e, "box", nil)
	files := e.VolumeFiles("shared")
	wantFull := func(what string) {
		t.Helper()
		_, err := files.MakeDir(ctx, "dir", brig.VolumeWrite{})
		if brig.KindOf(err) != brig.FailedPrecondition || brig.AsError(err).Field != "" || !strings.Contains(err.Error(), "full") {
			t.Errorf("a directory in a volume without %s: %v", what, err)
		}
	}
	out := inVolume(t, ctx, e, "box", `
import errno
try:
  for n in range(1<<20): open('f%d' % n, 'w').close()
except OSError as x: print(errno.errorcode[x.errno], n)
`)
	var n int
	if _, err := fmt.Sscanf(out, "ENOSPC %d", &n); err != nil || n > 1024 || n < 500 {
		t.Errorf("about the number of files the sandbox says %q", out)
	}
	wantFull("inodes")
	out = inVolume(t, ctx, e, "box", `
import errno
for f in os.listdir('.'): os.remove(f)
n = 0
try:
  with open('big', 'wb', 0) as f:
    while True: n += f.write(b'x'*65536)
except OSError as x: print(errno.errorcode[x.errno], n)
try:
  f = os.open('sparse', os.O_RDWR|os.O_CREAT); os.ftruncate(f, 1<<40)
  for i in range(1<<20): os.pwrite(f, b'x'*4096, i<<20)
except OSError as x: print(errno.errorcode[x.errno])
`)
	if _, err := fmt.Sscanf(out, "ENOSPC %d\nENOSPC", &n); err != nil || n > 16*brig.MiB || n < 8*brig.MiB {
		t.Errorf("about the size the sandbox says %q", out)
	}
	wantFull("blocks")
	inVolume(t, ctx, e, "box", "for f in os.listdir('.'): os.remove(f)")
	if _, err := files.Write(ctx, "new", brig.VolumeWrite{}, strings.NewReader(strings.Repeat("x", 32<<20))); brig.KindOf(err) != brig.FailedPrecondition {
		t.Errorf("32 MiB in a volume of 16: %v", err)
	}
	if err := files.Remove(ctx, "new"); err != nil && brig.KindOf(err) != brig.NotFound {
		t.Error(err)
	}
	inVolume(t, ctx, e, "box", "open('again','w').write('x'*(1<<20))")
	v, err := e.GetVolume(ctx, "shared")
	if err != nil || v.Used > v.Size {
		t.Errorf("it uses %d of %d bytes, %v", v.Used, v.Size, err)
	}
}

// TestVolumeQuota verifies that the sum of the sizes of a tenant's volumes never exceeds the quota, also when
// they are created at the same time, and that a removed volume counts until its sandboxes have ended.
//
//suite:part hostile
func TestVolumeQuota(t *testing.T) {
	needRoot(t)
	e, ctx := newEngine(t)
	if err := e.Options.Volumes.Check(); err != nil {
		t.Skip(err)
	}
	const quota = 100 * brig.MiB
	if err := e.Store.PutTenant(ctx, &brig.Tenant{Name: "acme", Quota: brig.Quota{Volumes: quota}}); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	var made, rejected atomic.Int64
	for i := range 12 {
		all.Go(func() {
			_, err := e.CreateVolume(ctx, fmt.Sprintf("v%d", i), 16*brig.MiB)
			switch brig.KindOf(err) {
			case brig.RateLimited:
				rejected.Add(1)
			default:
				if err != nil {
					t.Error(err)
				}
				made.Add(1)
			}
		})
	}
	all.Wait()
	if made.Load() != 6 || rejected.Load() != 6 {
		t.Errorf("%d volumes of 16 MiB are in a quota of 100 MiB, %d are rejected", made.Load(), rejected.Load())
	}
	list, err := e.Volumes(ctx)
	if err != nil || len(list) != 6 {
		t.Fatalf("%d volumes, %v", len(list), err)
	}
	other := brig.WithActor(ctx, brig.Actor{Name: "bob", Tenant: "rival", Role: brig.Member})
	if _, err := e.CreateVolume(other, "v", 200*brig.MiB); err != nil {
		t.Errorf("another tenant: %v", err)
	}
	name := list[0].Name
	if _, err := e.Create(ctx, brig.Spec{Name: "box", Volumes: []brig.VolumeMount{{Name: name, Path: "/volume"}}}); err != nil {
		t.Fatal(err)
	}
	if err := e.RemoveVolume(ctx, name); err != nil {
		t.Fatal(err)
	}
	if _, err := e.CreateVolume(ctx, name, 16*brig.MiB); brig.KindOf(err) != brig.RateLimited {
		t.Errorf("while a sandbox uses the removed volume: %v", err)
	}
	if _, err := e.Create(ctx, brig.Spec{Name: "late", Volumes: []brig.VolumeMount{{Name: name, Path: "/volume"}}}); brig.KindOf(err) != brig.InvalidArgument {
		t.Errorf("a mount of a removed volume: %v", err)
	}
	inVolume(t, ctx, e, "box", "open('a','w').write('still'); print(open('a').read())")
	if err := e.Remove(ctx, "box"); err != nil {
		t.Fatal(err)
	}
	if err := e.RemoveVolume(ctx, list[1].Name); err != nil { // also deletes those that are no longer used
		t.Fatal(err)
	}
	for _, again := range []string{name, "another"} {
		if _, err := e.CreateVolume(ctx, again, 16*brig.MiB); err != nil {
			t.Errorf("after the sandbox has ended: %v", err)
		}
	}
	images, err := filepath.Glob(filepath.Join(dataDirOf(t, e), "volumes", "*"))
	if err != nil || len(images) != 7 {
		t.Errorf("there are %d images, %v", len(images), err)
	}
}

// TestVolumeNumber verifies that a tenant has at most 100 volumes.
//
//suite:part hostile full
func TestVolumeNumber(t *testing.T) {
	needRoot(t)
	e, ctx := newEngine(t)
	if err := e.Options.Volumes.Check(); err != nil {
		t.Skip(err)
	}
	for i := range 101 {
		_, err := e.CreateVolume(ctx, fmt.Sprintf("v%d", i), 16*brig.MiB)
		if (err != nil) != (i == 100) || err != nil && brig.KindOf(err) != brig.RateLimited {
			t.Fatalf("volume %d: %v", i, err)
		}
	}
}

// TestVolumeOnFullDisk verifies that a server rejects volumes that have no room, and that a volume that
// lost data, because the disk is full, cannot be written until it is mounted again. gVisor hides the
// errors of a flush, so a program could not notice the loss otherwise. What was flushed before stays.
//
//suite:part crash full
func TestVolumeOnFullDisk(t *testing.T) {
	needRoot(t)
	disk := filepath.Join(t.TempDir(), "disk")
	dir := filepath.Join(disk, "data")
	if err := os.Mkdir(disk, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=192m,mode=700"); err != nil {
		t.Skipf("no disk of a size can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(disk, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { removeSandboxes(t, dir) })
	s := startServer(t, dir, "--pool", "0")
	svc, ctx := s.client(), t.Context()
	if _, err := svc.CreateVolume(ctx, "huge", brig.GiB); brig.KindOf(err) != brig.RateLimited {
		t.Errorf("a volume without room: %v", err)
	}
	if _, err := svc.CreateVolume(ctx, "shared", 64*brig.MiB); brig.KindOf(err) == brig.Unimplemented {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	if _, err := svc.CreateVolume(ctx, "second", 96*brig.MiB); brig.KindOf(err) != brig.RateLimited {
		t.Errorf("a volume whose room is promised: %v", err)
	}
	volumeBox(t, ctx, svc, "box", nil)
	inVolume(t, ctx, svc, "box", "f = open('kept','wb'); f.write(b'k'*(4<<20)); f.flush(); os.fsync(f.fileno())")
	filler := filepath.Join(disk, "filler")
	fill(t, filler)
	st, err := os.Stat(filler)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filler, st.Size()-4<<20); err != nil { // the server's records need room
		t.Fatal(err)
	}
	// The server may be unable to record the end of the program, so the program keeps its result in memory.
	_, _ = svc.Exec(ctx, "box", brig.Command{Argv: []string{"python3", "-c", `
import os, errno
try:
  f = open('/volume/lost','wb'); f.write(b'l'*(16<<20)); f.flush(); os.fsync(f.fileno())
  open('/volume/next','w').write('next'); r = 'unnoticed'
except OSError as x: r = errno.errorcode[x.errno]
open('/dev/shm/result','w').write(r)
`}, Timeout: time.Minute}, brig.IO{})
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if out := inVolume(t, ctx, svc, "box", "print(open('/dev/shm/result').read())"); out != "EROFS" && out != "EIO" && out != "ENOSPC" {
		t.Errorf("the loss of data on a full disk is %s", out)
	}
	if _, err := svc.VolumeFiles("shared").Write(ctx, "x", brig.VolumeWrite{}, strings.NewReader("x")); brig.KindOf(err) != brig.Unavailable {
		t.Errorf("the API writes to the volume: %v", err)
	}
	if err := svc.Remove(ctx, "box"); err != nil {
		t.Error(err)
	}
	wantNoLoopsAfterIdle(t, dir)
	volumeBox(t, ctx, svc, "next", nil)
	if out := inVolume(t, ctx, svc, "next", "b = open('kept','rb').read(); print(len(b), b == b'k'*(4<<20)); open('new','w').write('new')"); out != "4194304 True" {
		t.Errorf("after the disk has room again: %s", out)
	}
}

// wantNoLoopsAfterIdle is like wantNoLoops, for a server that keeps volumes mounted for a while.
func wantNoLoopsAfterIdle(t *testing.T, dir string) {
	t.Helper()
	for end := time.Now().Add(promptTimeout); time.Now().Before(end) && len(loopsOf(t, dir)) > 0; {
		time.Sleep(50 * time.Millisecond)
	}
	wantNoLoops(t, dir)
}

// TestE2BVolumeStatus verifies the statuses of wrong calls and of calls on a full volume, over E2B's API
// and over REST, and that REST sets the owner and the mode.
//
//suite:part clients
func TestE2BVolumeStatus(t *testing.T) {
	needRoot(t)
	s := startServer(t, dataDir(t), "--pool", "0")
	v, err := s.client().CreateVolume(t.Context(), "small", 16*brig.MiB)
	if brig.KindOf(err) == brig.Unimplemented {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	status, body := s.do("GET", "/volumes/"+v.ID, "")
	_, token, _ := strings.Cut(body, `"token":"`)
	token, _, _ = strings.Cut(token, `"`)
	if status != http.StatusOK || token == "" {
		t.Fatalf("%d %s", status, body)
	}
	send := func(token, method, path, body string) int {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, s.url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		req.Header.Set("Content-Type", "application/octet-stream")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp.StatusCode
	}
	content := "/volumecontent/" + v.ID
	owner, mode := uint32(7), uint32(0o640)
	files := s.client().VolumeFiles("small")
	if e, err := files.MakeDir(t.Context(), "dir", brig.VolumeWrite{VolumeAttributes: brig.VolumeAttributes{UID: &owner}}); err != nil || e.UID != owner {
		t.Errorf("a directory with an owner: %+v, %v", e, err)
	}
	if e, err := files.SetAttributes(t.Context(), "dir", brig.VolumeAttributes{Mode: &mode}); err != nil || e.Mode != mode || e.UID != owner {
		t.Errorf("a directory with another mode: %+v, %v", e, err)
	}
	large := strings.Repeat("x", 20<<20)
	for _, c := range []struct {
		token, method, path, body string
		want                      int
	}{
		{token, "PUT", content + "/file?path=/a", "x", 201},
		{token, "PUT", content + "/file?path=/a", "x", 409},
		{token, "PUT", content + "/file?path=/big", large, 507},
		{token, "PUT", content + "/file?path=/a/b", "x", 409},
		{token, "GET", content + "/dir?path=/a", "", 404},
		{s.key, "PUT", "/v1/volumes/small/files/content?path=/big2", large, 409},
		{"wrong", "GET", content + "/file?path=/a", "", 401},
		{s.key, "GET", content + "/file?path=/a", "", 401},
		{token, "GET", "/v1/volumes/small", "", 401},
		{token, "GET", "/volumes", "", 401},
	} {
		if got := send(c.token, c.method, c.path, c.body); got != c.want {
			t.Errorf("%s %s: %d, want %d", c.method, c.path, got, c.want)
		}
	}
}
