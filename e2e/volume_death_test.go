package e2e

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/testenv"
)

// volumeWriter appends numbered lines to a file of the volume, and prints each number after it has
// written the line. Every eighth line is flushed.
const volumeWriter = `
import os, sys, time
f = os.open('/volume/'+sys.argv[1], os.O_WRONLY|os.O_CREAT|os.O_APPEND, 0o666)
for i in range(1 << 30):
  os.write(f, b'%d\n' % i)
  if i % 8 == 0: os.fsync(f)
  print(i, flush=True)
  time.sleep(.001)
`

// lastLine remembers the last number that a program printed.
type lastLine struct {
	mu   sync.Mutex
	rest string
	last int
}

func (l *lastLine) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := strings.Split(l.rest+string(p), "\n")
	l.rest = lines[len(lines)-1]
	if len(lines) > 1 {
		l.last, _ = strconv.Atoi(lines[len(lines)-2])
	}
	return len(p), nil
}

func (l *lastLine) get() int { l.mu.Lock(); defer l.mu.Unlock(); return l.last }

// TestVolumeSurvivesKills kills servers, shims and sentries at random moments while sandboxes write to
// a volume. No line that a program has reported as written may be lost, no image may ever have two loop
// devices, and nothing may be left on the host.
//
//suite:part crash
func TestVolumeSurvivesKills(t *testing.T) {
	needRoot(t)
	dir := dataDir(t)
	s := startServer(t, dir, "--pool", "0")
	ctx := t.Context()
	v, err := s.client().CreateVolume(ctx, "shared", 64*brig.MiB)
	if brig.KindOf(err) == brig.Unimplemented {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	watched, stopWatching := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		for watched.Err() == nil {
			for image, n := range loopsOf(t, dir) {
				// A device that is being detached can still be listed.
				if time.Sleep(200 * time.Millisecond); n > 1 && loopsOf(t, dir)[image] > 1 {
					t.Errorf("%s has %d loop devices", image, n)
				}
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
	defer watch.Wait()
	defer stopWatching()
	victims := []string{"runsc-sandbox", "brig-shim", "server"}
	for round := range testenv.Size(3, 60) {
		victim := victims[round%len(victims)]
		svc := s.client()
		name := fmt.Sprintf("r%d", round)
		var boxes []*brig.Sandbox
		for i := range 2 {
			box, err := svc.Create(ctx, brig.Spec{Name: fmt.Sprintf("%s-%d", name, i), TTL: time.Hour, Volumes: []brig.VolumeMount{{Name: "shared", Path: "/volume"}}})
			if err != nil {
				t.Fatal(err)
			}
			boxes = append(boxes, box)
		}
		acknowledged := []*lastLine{{last: -1}, {last: -1}}
		var writers sync.WaitGroup
		for i, box := range boxes {
			writers.Go(func() {
				_, _ = svc.Exec(ctx, box.Spec.Name, brig.Command{Argv: []string{"python3", "-c", volumeWriter, box.Spec.Name}, Timeout: time.Hour}, brig.IO{Stdout: acknowledged[i]})
			})
		}
		for end := time.Now().Add(promptTimeout); acknowledged[0].get() < 20 && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Duration(rand.IntN(200)) * time.Millisecond)
		if victim == "server" {
			s.kill()
			writers.Wait()
			s = startServer(t, dir, "--pool", "0")
			svc = s.client()
		} else if err := syscall.Kill(processOf(t, dir, boxes[0].ID, victim), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		for _, box := range boxes {
			if err := svc.Remove(ctx, box.Spec.Name); err != nil && brig.KindOf(err) != brig.NotFound {
				t.Errorf("remove %s: %v", box.Spec.Name, err)
			}
		}
		writers.Wait()
		for i, box := range boxes {
			_, r, err := svc.VolumeFiles("shared").Read(ctx, box.Spec.Name)
			if err != nil {
				t.Errorf("after the death of the %s: %v", victim, err)
				continue
			}
			b, err := io.ReadAll(r)
			r.Close()
			lines := strings.Split(string(b), "\n")
			last := acknowledged[i].get()
			if err != nil || last < 0 || len(lines) <= last {
				t.Errorf("after the death of the %s: %d lines, %d acknowledged, %v", victim, len(lines)-1, last+1, err)
			}
			for n := range min(len(lines)-1, last+1) {
				if lines[n] != strconv.Itoa(n) {
					t.Errorf("after the death of the %s line %d is %.40q", victim, n, lines[n])
					break
				}
			}
			t.Logf("%s: %d acknowledged, %d written", victim, last+1, len(lines)-1)
		}
		if t.Failed() {
			break
		}
	}
	stopWatching()
	if err := s.stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	checkNoHostTraces(t, dir)
	wantNoLoops(t, dir)
	checkImage(t, dir, v.ID)
	if b, err := os.ReadFile("/proc/self/mountinfo"); err != nil || strings.Contains(string(b), v.ID) {
		t.Errorf("a mount is left: %v", err)
	}
}

// TestVolumeOfPausedSandbox verifies that a removed volume outlives the pause of a sandbox and the restart of
// the server, and that its image goes when the last sandbox and copy have ended.
//
//suite:part crash
func TestVolumeOfPausedSandbox(t *testing.T) {
	needRoot(t)
	dir := dataDir(t)
	s := startServer(t, dir, "--pool", "0")
	ctx, svc := t.Context(), s.client()
	v, err := svc.CreateVolume(ctx, "shared", 16*brig.MiB)
	if brig.KindOf(err) == brig.Unimplemented {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, filesOnly := range map[string]bool{"memory": false, "files": true} {
		volumeBox(t, ctx, svc, name, func(s *brig.Spec) { s.Pausable = true })
		inVolume(t, ctx, svc, name, "open('"+name+"','w').write('kept')")
		if _, err := svc.Pause(ctx, name, brig.PauseOptions{FilesOnly: filesOnly}); err != nil {
			t.Fatal(err)
		}
	}
	if err := svc.RemoveVolume(ctx, "shared"); err != nil {
		t.Fatal(err)
	}
	s.kill()
	s = startServer(t, dir, "--pool", "0")
	svc = s.client()
	image := volumesOf(t, dir).Image(v.ID)
	if _, err := os.Stat(image); err != nil {
		t.Fatalf("the image of a volume that paused sandboxes use: %v", err)
	}
	if _, err := svc.CreateVolume(ctx, "shared", 16*brig.MiB); err != nil {
		t.Errorf("the name of the removed volume: %v", err)
	}
	names := []string{"memory", "files"}
	for _, name := range names {
		copies, err := svc.Fork(ctx, name, brig.ForkSpec{Name: name + "-copy"})
		if err != nil {
			t.Errorf("fork %s: %v", name, err)
		}
		for _, c := range copies {
			names = append(names, c.Spec.Name)
		}
		if _, err := svc.Resume(ctx, name); err != nil {
			t.Fatalf("resume %s: %v", name, err)
		}
	}
	for _, name := range names {
		if out := inVolume(t, ctx, svc, name, "print(sorted(os.listdir('.')), open('files').read(), open('memory').read())"); out != "['files', 'memory'] kept kept" {
			t.Errorf("%s sees %s", name, out)
		}
		if err := svc.Remove(ctx, name); err != nil {
			t.Error(err)
		}
	}
	// The deletion of another volume deletes those that are no longer used.
	if err := svc.RemoveVolume(ctx, "shared"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(image); !os.IsNotExist(err) {
		t.Errorf("the image after the end of all sandboxes: %v", err)
	}
}
