package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/attack"
	"github.com/brig-run/brig/internal/testenv"
)

// maxMemoryGrowth returns the permitted growth of the server's memory while it relays a long
// stream. It is smaller than the stream, but leaves room for garbage that accumulates on a busy
// host before the collector runs.
func maxMemoryGrowth() int64 {
	if testenv.RaceEnabled {
		return 256 * int64(brig.MiB)
	}
	return 112 * int64(brig.MiB)
}

// peak returns the peak resident memory of a process, in bytes.
func peak(t *testing.T, pid int) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			n, err := strconv.ParseInt(strings.Fields(v)[0], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n << 10
		}
	}
	t.Fatal("no VmHWM")
	return 0
}

// runResponse holds the fields of the API's response to a run that these tests use.
type runResponse struct {
	Stdout      string
	StdoutBytes int64 `json:"stdout_bytes"`
	StdoutCut   *struct{ Head, Tail int }
	Truncated   bool
	ExitCode    int  `json:"exit_code"`
	TimedOut    bool `json:"timed_out"`
	OOMKilled   bool `json:"oom_killed"`
	Sandbox     string
}

// run runs a command in a one-shot sandbox. The argument more holds additional JSON fields of the
// request.
func (s *server) run(command []string, more string) runResponse {
	s.t.Helper()
	argv, err := json.Marshal(command)
	if err != nil {
		s.t.Fatal(err)
	}
	status, body := s.do("POST", "/v1/run", `{"command":`+string(argv)+more+`}`)
	var a runResponse
	if err := json.Unmarshal([]byte(body), &a); err != nil || status != 200 {
		s.t.Fatalf("%d %.500s: %v", status, body, err)
	}
	return a
}

// TestOutputFloodsAreCountedExactly verifies that the response for a program that writes far more output than the
// server keeps contains the exact size of the output, and its start and end. The server's memory
// must grow by at most maxMemoryGrowth, regardless of the size.
//
//suite:part core
func TestOutputFloodsAreCountedExactly(t *testing.T) {
	s := startServer(t, dataDir(t))
	s.run([]string{"true"}, "") // exclude the cost of the first run
	size, line := int64(testenv.Size(256<<20, 5<<30)), int64(testenv.Size(160<<20, 256<<20))
	for _, c := range []struct {
		what, script string
		total        int64
		tail         string
	}{
		{"one line without an end", fmt.Sprintf("printf 'the head'; head -c %d /dev/zero | tr '\\0' x; printf 'the tail'", line), line + 16, "the tail"},
		{"zeros", fmt.Sprintf("printf 'the head'; head -c %d /dev/zero; printf 'the tail'", size), size + 16, "the tail"},
		{"lines", fmt.Sprintf("printf 'the head'; yes | head -c %d; printf 'the tail'", line), line + 16, "the tail"},
	} {
		before, start := peak(t, s.cmd.Process.Pid), time.Now()
		a := s.run([]string{"/bin/sh", "-c", c.script}, `,"timeout_ms":600000,"limits":{"cpus":2}`)
		took, grown := time.Since(start), peak(t, s.cmd.Process.Pid)-before
		if !a.Truncated || a.StdoutBytes != c.total || a.ExitCode != 0 || a.TimedOut || a.OOMKilled {
			t.Errorf("%s: of %d bytes: truncated %t, stdout_bytes %d, exit code %d, timed out %t, oom %t",
				c.what, c.total, a.Truncated, a.StdoutBytes, a.ExitCode, a.TimedOut, a.OOMKilled)
		}
		if !strings.HasPrefix(a.Stdout, "the head") || !strings.HasSuffix(a.Stdout, c.tail) {
			t.Errorf("%s: head %.20q or tail %.20q is lost", c.what, a.Stdout, a.Stdout[max(0, len(a.Stdout)-20):])
		}
		if grown >= maxMemoryGrowth() {
			t.Errorf("%s: the server grew by %s", c.what, brig.FormatBytes(grown))
		}
		attack.RecordCase("RES-07", fmt.Sprintf("%s, %d bytes of it", c.what, c.total), grown >= maxMemoryGrowth() || len(a.Stdout) > 8<<20)
		t.Logf("%s: %d MiB in %v, %.0f MiB/s; the server's peak grew by %d KiB", c.what, c.total>>20, took.Round(time.Millisecond), float64(c.total>>20)/took.Seconds(), grown>>10)
	}
	checkOnlyPool(t, s)
}

// TestTinyWritesAreCounted verifies the reported output size of a program that performs many
// one-byte writes, a million at full size.
//
//suite:part core
func TestTinyWritesAreCounted(t *testing.T) {
	e, ctx := newEngine(t)
	start, writes := time.Now(), testenv.Size(100_000, 1_000_000)
	o, err := e.Run(ctx, brig.Program{Timeout: 5 * time.Minute, Limits: brig.Limits{CPUs: 2, Output: brig.KiB}, Command: []string{
		"python3", "-c", fmt.Sprintf("import os\nfor i in range(%d): os.write(1,b'x')", writes),
	}}, brig.IO{})
	if err != nil {
		t.Fatal(err)
	}
	if o.Stdout.Total != int64(writes) || !o.Truncated() || o.ExitCode != 0 || len(o.Stdout.Head)+len(o.Stdout.Tail) != brig.KiB {
		t.Errorf("%+v, %d bytes kept", o.Result, len(o.Stdout.Head)+len(o.Stdout.Tail))
	}
	t.Logf("%d writes in %v", writes, time.Since(start).Round(time.Millisecond))
}

// TestLongInputIsReturnedCompletely verifies that cat returns every byte of an input that is larger than the server
// may keep in memory, and that the server does not retain the data.
//
//suite:part core
func TestLongInputIsReturnedCompletely(t *testing.T) {
	s := startServer(t, dataDir(t))
	s.run([]string{"true"}, "")
	size := int64(testenv.Size(136<<20, 160<<20))
	data := func() io.Reader {
		return io.LimitReader(rand.NewChaCha8([32]byte{1}), size)
	}
	want := sha256.New()
	if _, err := io.Copy(want, data()); err != nil {
		t.Fatal(err)
	}
	got := sha256.New()
	before, start := peak(t, s.cmd.Process.Pid), time.Now()
	var errs bytes.Buffer
	cmd := exec.Command(bin(t, "brig"), "run", "--data-dir", s.dir, "-i", "--cpus", "2", "--timeout", "5m", "--", "cat")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = data(), got, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, &errs)
	}
	if !bytes.Equal(got.Sum(nil), want.Sum(nil)) {
		t.Errorf("of %d bytes others came back", size)
	}
	grown := peak(t, s.cmd.Process.Pid) - before
	if grown >= maxMemoryGrowth() {
		t.Errorf("the server grew by %s", brig.FormatBytes(grown))
	}
	t.Logf("%d MiB there and back in %v; the server's peak grew by %d KiB", size>>20, time.Since(start).Round(time.Millisecond), grown>>10)
}
