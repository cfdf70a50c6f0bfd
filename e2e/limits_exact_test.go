package e2e

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/attack"
)

// deviation returns the relative deviation of a value from the expected value, in percent.
func deviation(got, want float64) float64 { return 100 * (got/want - 1) }

// TestDiskLimitIsExact verifies that a program can write as many bytes as the disk limit allows,
// within one percent: in one large file, in many small files, and again after their removal.
//
//suite:part core
func TestDiskLimitIsExact(t *testing.T) {
	needRoot(t)
	p, images := newProvider(t, t.TempDir())
	for _, limit := range []int64{64 * brig.MiB, 256 * brig.MiB} {
		m := newMachine(t, p, images, brig.ID(fmt.Sprintf("disk-%d", limit>>20)), func(s *brig.Spec) { s.Limits.Disk, s.Limits.Memory = limit, brig.GiB })
		m.sh("user", "rm "+probe) // the probe counts against the limit, like all written data
		for _, c := range []struct {
			name, code string
			tolerance  float64
		}{
			{"one large file", `
n, f = 0, open("/home/user/f", "wb", buffering=0)
try:
    while True: n += f.write(b"x" * 65536)
except OSError as e: print(n, e.errno)
import os; f.close(); os.remove("/home/user/f")`, 1},
			{"files of 4 KiB", `
import os
os.mkdir("/home/user/d"); n, i = 0, 0
try:
    while True:
        f = os.open("/home/user/d/%d" % i, os.O_WRONLY | os.O_CREAT); i += 1
        try: n += os.write(f, b"x" * 4096)
        finally: os.close(f)
except OSError as e: print(n, e.errno)
import shutil; shutil.rmtree("/home/user/d")`, 1},
			{"one large file again", `
n, f = 0, open("/home/user/f", "wb", buffering=0)
try:
    while True: n += f.write(b"x" * 65536)
except OSError as e: print(n, e.errno)
f.flush(); import os; os.fsync(f.fileno())`, 1},
		} {
			res, out, err := m.try(brig.Command{Argv: []string{"python3", "-c", c.code}, Timeout: 2 * time.Minute})
			var n int64
			var errno int
			if _, serr := fmt.Sscan(out, &n, &errno); serr != nil || err != nil || errno != 28 {
				t.Errorf("%s: %q, %+v, %v", c.name, out, res, err)
				continue
			}
			off := deviation(float64(n), float64(limit))
			t.Logf("%d MiB, %s: %d bytes were written, %+.2f %%", limit>>20, c.name, n, off)
			if math.Abs(off) > c.tolerance {
				t.Errorf("%d MiB, %s: %+.2f %%", limit>>20, c.name, off)
			}
			attack.RecordCase("RES-04", fmt.Sprintf("%d MiB by %s", limit>>20, c.name), off > c.tolerance)
		}
		if off := deviation(float64(measureDiskUse(t, m)), float64(limit)); off > 1 {
			t.Errorf("the host's file has %+.2f %%", off)
		}
	}
}

// TestCPULimitIsAccurate verifies that busy threads receive the CPU time that their sandbox's
// limit allows, within five percent.
//
//suite:part core full alone
func TestCPULimitIsAccurate(t *testing.T) {
	needRoot(t)
	e, ctx := newEngine(t)
	for _, cpus := range []float64{0.5, 1, 1.5} {
		s, err := e.Create(ctx, brig.Spec{Limits: brig.Limits{CPUs: cpus}, Command: &brig.Command{Shell: strings.Repeat("(while :; do :; done) & ", 6) + "wait"}})
		if err != nil {
			t.Fatal(err)
		}
		dir := dataDirOf(t, e)
		preferCgroup(t, filepath.Dir(cgroupOf(t, dir, s.ID)))
		time.Sleep(time.Second)
		before, start := cpuTime(t, dir, s.ID), time.Now()
		throttled := throttledPeriods(t, dir, s.ID)
		time.Sleep(6 * time.Second)
		used := (cpuTime(t, dir, s.ID) - before).Seconds() / time.Since(start).Seconds()
		throttled = throttledPeriods(t, dir, s.ID) - throttled
		off := deviation(used, cpus)
		t.Logf("%g processors: %.3f were used, %+.2f %%, held back in %d periods of 60", cpus, used, off, throttled)
		// A value below the limit is a failure only if the sandbox was throttled; otherwise the
		// host was busy.
		if off > 5 || off < -5 && throttled > 55 {
			t.Errorf("%g processors: %+.2f %%", cpus, off)
		}
		attack.RecordCase("RES-08", fmt.Sprintf("six threads that spin for six seconds, with %g processors", cpus), off > 5)
		if err := e.Remove(ctx, s.Spec.Name); err != nil {
			t.Error(err)
		}
	}
}

// throttledPeriods returns the number of periods in which a sandbox exhausted
// its quota.
func throttledPeriods(t *testing.T, dir string, id brig.ID) (n int) {
	t.Helper()
	group := cgroupOf(t, dir, id)
	b, err := os.ReadFile("/sys/fs/cgroup/cpu" + group + "/cpu.stat")
	if err != nil {
		b, err = os.ReadFile("/sys/fs/cgroup" + group + "/cpu.stat")
	}
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if _, err := fmt.Sscanf(line, "nr_throttled %d", &n); err == nil {
			return n
		}
	}
	t.Errorf("no periods in %s", b)
	return 0
}

// preferCgroup raises the weights of a cgroup and its parents above those of all other processes
// on the host during a measurement. Weights do not affect the limit.
func preferCgroup(t *testing.T, group string) {
	t.Helper()
	for ; group != "/" && group != "."; group = filepath.Dir(group) {
		for file, weight := range map[string]string{"/sys/fs/cgroup/cpu" + group + "/cpu.shares": "262144", "/sys/fs/cgroup" + group + "/cpu.weight": "10000"} {
			was, err := os.ReadFile(file)
			if err != nil {
				continue
			}
			if err := os.WriteFile(file, []byte(weight), 0o600); err != nil {
				t.Errorf("%s: %v", file, err)
			}
			t.Cleanup(func() { _ = os.WriteFile(file, was, 0o600) })
		}
	}
}

// weightOf returns the CPU weight of a cgroup relative to its siblings.
func weightOf(t *testing.T, group string) (n int) {
	t.Helper()
	b, err := os.ReadFile("/sys/fs/cgroup/cpu" + group + "/cpu.shares")
	if err != nil {
		b, err = os.ReadFile("/sys/fs/cgroup" + group + "/cpu.weight")
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscan(string(b), &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestDiskUsageFollowsFiles verifies that the measured disk usage follows the files of a sandbox when they
// are written and removed, after a pause, and on the next server. The control is a file in tmpfs,
// which uses no disk space.
//
//suite:part core
func TestDiskUsageFollowsFiles(t *testing.T) {
	s := startE2B(t)
	c, ctx := s.client(), t.Context()
	var made struct{ SandboxID string }
	s.e2b(t, "POST", "/sandboxes", `{"templateID":"base","timeout":3600}`, &made)
	one := made.SandboxID
	measured := func() int64 {
		t.Helper()
		u, err := s.client().Usage(ctx, one)
		if err != nil {
			t.Fatal(err)
		}
		return u.Disk
	}
	want := func(when string, mib int64) {
		t.Helper()
		var got int64
		for end := time.Now().Add(promptTimeout); time.Now().Before(end); time.Sleep(50 * time.Millisecond) { // gVisor frees space with a delay
			if got = measured(); got >= mib<<20 && got < (mib+8)<<20 {
				return
			}
		}
		t.Errorf("%s, the sandbox uses %d KiB of the disk, want %d MiB", when, got>>10, mib)
	}
	want("at first", 0)
	shellOut(t, ctx, c, one, "cd /home/user && head -c 40M /dev/urandom > f; head -c 20M /dev/urandom > g; head -c 30M /dev/urandom > /dev/shm/h")
	want("with two files", 60)
	shellOut(t, ctx, c, one, "rm /home/user/f")
	want("with one file", 20)
	if _, err := c.Pause(ctx, one, brig.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	shellOut(t, ctx, c, one, "true")
	want("after a pause", 20)
	s.kill()
	s.server = startServer(t, s.dir)
	want("for the next server", 20)
	box, err := s.client().Get(ctx, one)
	if err != nil {
		t.Fatal(err)
	}
	var metrics []struct{ DiskUsed, DiskTotal int64 }
	s.e2b(t, "GET", "/sandboxes/"+one+"/metrics", "", &metrics)
	if len(metrics) != 1 || metrics[0].DiskUsed < 20<<20 || metrics[0].DiskTotal != box.Spec.Limits.Disk {
		t.Errorf("E2B's API has %+v", metrics)
	}
}

// e2b sends a request to E2B's API, and decodes the response into out.
func (s *e2bServer) e2b(t *testing.T, method, path, body string, out any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Api-Key", strings.TrimPrefix(s.env[0], "E2B_API_KEY="))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil || resp.StatusCode >= 300 {
		t.Fatalf("%s %s: %s, %v", method, path, resp.Status, err)
	}
}
