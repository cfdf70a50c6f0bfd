package providertest

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

func testLife(t *testing.T, h Harness) {
	c := h.Provider.Capabilities()
	if c.Name == "" || c.Isolation == "" {
		t.Errorf("capabilities: %+v", c)
	}
	_, in := create(t, h, nil)
	alive(t, in)
	if got := in.Handle(); got.Provider != c.Name || got.Version == 0 {
		t.Errorf("handle: %+v", got)
	}
	if a := run(t, in, portable("echo hi")); a.out != "hi\n" || a.ExitCode != 0 || !a.Done || a.Duration <= 0 || a.Started.IsZero() {
		t.Errorf("%+v", a)
	}
	destroy(t, in)
	if e := ended(t, in); e.Reason != brig.Killed || e.At.IsZero() {
		t.Errorf("exit: %+v", e)
	}
}

func readLogs(t *testing.T, in brig.Instance) string {
	t.Helper()
	r, err := in.Logs(t.Context())
	if err != nil {
		t.Fatalf("open logs: %v", err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatalf("read logs: %v", err)
	}
	return string(b)
}

func testLogs(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	if got := readLogs(t, in); got != "" {
		t.Errorf("a new machine's log: %q", got)
	}
	for _, line := range []string{"one\n", "two\n"} {
		if err := in.Log([]byte(line)); err != nil {
			t.Fatal(err)
		}
	}
	if got := readLogs(t, in); got != "one\ntwo\n" {
		t.Errorf("%q", got)
	}
	if err := in.Stop(t.Context(), 0, brig.Stopped); err != nil {
		t.Fatal(err)
	}
	if got := readLogs(t, in); got != "one\ntwo\n" {
		t.Errorf("after the end: %q", got)
	}
}

// testLogTimes checks that log lines have the times at which they were written.
func testLogTimes(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	begin := time.Now().Truncate(time.Millisecond)
	say := func(text string) {
		t.Helper()
		if err := in.Log([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	say("the first line\nand the second ")
	between := time.Now()
	time.Sleep(1100 * time.Millisecond)
	say("line, which ends later\n\nthe fourth line")
	if err := in.Stop(t.Context(), 0, brig.Stopped); err != nil {
		t.Fatal(err)
	}
	r, err := in.TimedLogs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	lines, end := strings.Split(string(b), "\n"), time.Now()
	want := []string{"the first line", "and the second line, which ends later", "", "the fourth line"}
	if len(lines) != len(want) {
		t.Fatalf("%q", b)
	}
	for i, line := range lines {
		at, rest, ok := brig.CutLogTime(line)
		from, to := begin, between
		if i > 1 {
			from, to = between, end
		}
		if !ok || rest != want[i] || at.Before(from) || at.After(to) {
			t.Errorf("%q, want %q between %v and %v", line, want[i], from, to)
		}
	}
}

func withMain(h Harness, real, fake string) func(*brig.Spec) {
	return func(s *brig.Spec) {
		cmd := portable(fake)
		if h.Real {
			cmd = script(real)
		}
		s.Command = &cmd
	}
}

func testMainProgram(t *testing.T, h Harness) {
	_, in := create(t, h, withMain(h, "echo out; echo err >&2; sleep 0.3; exit 3", "exit 3"))
	if e := ended(t, in); e.Reason != brig.Exited || e.Code != 3 || e.OOMKilled || time.Since(e.At) > time.Minute {
		t.Errorf("exit: %+v", e)
	}
	if got := readLogs(t, in); h.Real && (!strings.Contains(got, "out\n") || !strings.Contains(got, "err\n")) {
		t.Errorf("logs: %q", got)
	}
}

func testMainProgramMissing(t *testing.T, h Harness) {
	_, in := create(t, h, func(s *brig.Spec) {
		cmd := portable("no-such-program")
		s.Command = &cmd
	})
	if e := ended(t, in); e.Reason != brig.Exited || e.Code != 127 {
		t.Errorf("exit: %+v", e)
	}
}

// testMainProgramHeld checks that a held main program starts once, when
// StartMain is called. If the program lingers, the instance continues to run
// after the program's end, and the exit code is available.
func testMainProgramHeld(t *testing.T, h Harness) {
	main := withMain(h, "cat /workspace/f; exit 3", "exit 3")
	held := func(s *brig.Spec) { main(s); s.Held = true }
	_, in := create(t, h, held)
	if err := unpack(t.Context(), in, brig.UnpackOptions{}, file("f")); err != nil {
		t.Fatal(err)
	}
	time.Sleep(500 * time.Millisecond)
	if in.Exit() != nil {
		t.Fatalf("it began by itself: %+v", in.Exit())
	}
	for range 2 {
		if err := in.StartMain(t.Context(), false); err != nil && in.Exit() == nil {
			t.Fatal(err)
		}
	}
	if e := ended(t, in); e.Reason != brig.Exited || e.Code != 3 {
		t.Errorf("exit: %+v", e)
	}
	if got := readLogs(t, in); h.Real && got != "f" {
		t.Errorf("logs: %q", got)
	}
	if err := in.WaitMain(t.Context()); err == nil {
		t.Error("a machine that is gone waits for its program")
	}
}

// testMainProgramLingers checks that an instance outlives a lingering main
// program.
func testMainProgramLingers(t *testing.T, h Harness) {
	main := withMain(h, "cat /workspace/f; exit 3", "exit 3")
	id, in := create(t, h, func(s *brig.Spec) { main(s); s.Held = true })
	if err := in.StartMain(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	recovered, err := h.Provider.Recover(t.Context(), id, in.Handle())
	if err != nil {
		t.Fatal(err)
	}
	if err := recovered.WaitMain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if in.Exit() != nil {
		t.Fatalf("it has not lingered: %+v", in.Exit())
	}
	if err := recovered.Stop(t.Context(), 0, brig.Exited); err != nil {
		t.Fatal(err)
	}
	if e := ended(t, in); e.Code != 3 || e.Reason != brig.Exited {
		t.Errorf("exit: %+v", e)
	}
}

func testLease(t *testing.T, h Harness) {
	in, err := h.Provider.Create(t.Context(), newID(), h.spec(), time.Now().Add(1500*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { destroy(t, in) })
	if e := ended(t, in); e.Reason != brig.LeaseExpired {
		t.Errorf("exit: %+v", e)
	}
}

func testExtend(t *testing.T, h Harness) {
	var in brig.Instance
	var first time.Time
	for lease := 3 * time.Second; ; lease *= 4 {
		first = time.Now().Add(lease)
		var err error
		if in, err = h.Provider.Create(t.Context(), newID(), h.spec(), first); err == nil {
			t.Cleanup(func() { destroy(t, in) })
			err = in.Extend(t.Context(), time.Now().Add(time.Minute))
		}
		if late := time.Now().After(first); late && lease < waitTimeout {
			continue // the host was too busy for this lease
		}
		if err != nil {
			t.Fatal(err)
		}
		break
	}
	time.Sleep(time.Until(first.Add(300 * time.Millisecond)))
	alive(t, in)
	if err := in.Extend(t.Context(), time.Now().Add(200*time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if e := ended(t, in); e.Reason != brig.LeaseExpired {
		t.Errorf("exit: %+v", e)
	}
}

func testStopHard(t *testing.T, h Harness) {
	_, in := create(t, h, withMain(h, "trap '' TERM; while :; do sleep 1; done", "sleep 60"))
	start := time.Now()
	if err := in.Stop(t.Context(), 0, brig.Killed); err != nil {
		t.Fatal(err)
	}
	select {
	case <-in.Done():
	default:
		t.Error("Stop returned before the end")
	}
	if e := ended(t, in); e.Reason != brig.Killed || e.Code == 0 || time.Since(start) > promptTimeout {
		t.Errorf("after %v: %+v", time.Since(start), e)
	}
	if err := in.Stop(t.Context(), time.Second, brig.Stopped); err != nil {
		t.Errorf("a second stop: %v", err)
	}
	if e := in.Exit(); e.Reason != brig.Killed {
		t.Errorf("a second stop changed why: %+v", e)
	}
}

func testStopGraceful(t *testing.T, h Harness) {
	// The program's last output is larger than all buffers on the way.
	_, in := create(t, h, withMain(h, "trap 'seq 30000; echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done", ""))
	awaitUp(t, in)
	start := time.Now()
	if err := in.Stop(t.Context(), 2*waitTimeout, brig.Stopped); err != nil {
		t.Fatal(err)
	}
	if e := ended(t, in); e.Reason != brig.Stopped && e.Reason != brig.Exited || time.Since(start) > waitTimeout {
		t.Errorf("after %v: %+v", time.Since(start), e)
	}
	if got := readLogs(t, in); !strings.Contains(got, "bye") {
		t.Errorf("it was not asked, or what it said is lost: of %d bytes the last are %q", len(got), got[max(0, len(got)-100):])
	}
	// A program that ignores the signal is killed at the end of the grace
	// period.
	_, ignoring := create(t, h, withMain(h, "trap '' TERM; echo up; while :; do sleep 0.05; done", ""))
	awaitUp(t, ignoring)
	start = time.Now()
	if err := ignoring.Stop(t.Context(), 500*time.Millisecond, brig.Stopped); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(start); d < 400*time.Millisecond || d > promptTimeout {
		t.Errorf("a deaf one ended after %v", d)
	}
}

func testExecAfterTheEnd(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	if err := in.Stop(t.Context(), 0, brig.Stopped); err != nil {
		t.Fatal(err)
	}
	if _, err := try(t.Context(), in, newExecID(), portable("echo hi")); brig.KindOf(err) != brig.FailedPrecondition {
		t.Errorf("exec after the end: %v", err)
	}
}

func testEndWhileExec(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	time.AfterFunc(500*time.Millisecond, func() { _ = in.Stop(t.Context(), 0, brig.Killed) })
	start := time.Now()
	if _, err := try(t.Context(), in, newExecID(), portable("sleep 60")); brig.KindOf(err) != brig.FailedPrecondition || time.Since(start) > promptTimeout {
		t.Errorf("after %v: %v", time.Since(start), err)
	}
}

// awaitUp waits until the main program has written "up".
func awaitUp(t *testing.T, in brig.Instance) {
	t.Helper()
	for end := time.Now().Add(waitTimeout); !strings.Contains(readLogs(t, in), "up\n"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the main program is not up: %q", readLogs(t, in))
		}
	}
}
