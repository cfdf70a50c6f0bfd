package e2e

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/chaos"
)

// processOf returns the PID of the process of a sandbox whose command line begins with name.
func processOf(t *testing.T, dir string, id brig.ID, name string) int {
	t.Helper()
	for _, p := range processes(t, dir) {
		if strings.HasPrefix(p.Cmdline, name) && strings.Contains(p.Cmdline, string(id)) {
			return p.PID
		}
	}
	t.Fatalf("sandbox %s has no process %s: %v", id, name, processes(t, dir))
	return 0
}

// processesOfSandbox lists the host processes of one sandbox.
func processesOfSandbox(t *testing.T, dir string, id brig.ID) []chaos.Process {
	t.Helper()
	var out []chaos.Process
	for _, p := range processes(t, dir) {
		if strings.Contains(p.Cmdline+p.Cgroups, string(id)) {
			out = append(out, p)
		}
	}
	return out
}

// TestKilledSandboxProcess verifies that the server reports a sandbox as crashed when one of its
// host processes is killed. No process of the sandbox may remain, its output must be readable,
// and other sandboxes must not be affected.
//
//suite:part crash
func TestKilledSandboxProcess(t *testing.T) {
	s := startServer(t, dataDir(t))
	svc := s.client()
	ctx := t.Context()
	neighbour, err := svc.Create(ctx, brig.Spec{Name: "neighbour"})
	if err != nil {
		t.Fatal(err)
	}
	main := &brig.Command{Shell: "echo main has begun; sleep 600"}
	for what, c := range map[string]struct {
		process string
		main    *brig.Command
	}{
		"shim":                     {"brig-shim", nil},
		"sentry":                   {"runsc-sandbox", nil},
		"shim of a main program":   {"brig-shim", main},
		"sentry of a main program": {"runsc-sandbox", main},
	} {
		t.Run(what, func(t *testing.T) {
			box, err := svc.Create(ctx, brig.Spec{Command: c.main})
			if err != nil {
				t.Fatal(err)
			}
			res, err := svc.Exec(ctx, box.Spec.Name, brig.Command{Shell: "echo last words"}, brig.IO{})
			if err != nil {
				t.Fatal(err)
			}
			began := make(chan string, 1)
			under := make(chan error, 1)
			go func() {
				_, err := svc.Exec(ctx, box.Spec.Name, brig.Command{Shell: "sleep 600", Timeout: time.Hour}, brig.IO{Started: func(id string) { began <- id }})
				under <- err
			}()
			<-began
			if err := syscall.Kill(processOf(t, s.dir, box.ID, c.process), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			var now *brig.Sandbox
			for time.Since(start) < promptTimeout {
				if now, err = svc.Get(ctx, box.Spec.Name); err == nil && now.State == brig.Ended {
					break
				}
				time.Sleep(20 * time.Millisecond)
			}
			if err != nil || now.State != brig.Ended || now.Exit == nil || now.Exit.Reason != brig.Crashed || now.Exit.OOMKilled {
				t.Fatalf("after %v: %+v, exit %+v, %v", time.Since(start), now, now.Exit, err)
			}
			t.Logf("known as crashed after %v", time.Since(start).Round(time.Millisecond))
			select {
			case err := <-under:
				if brig.KindOf(err) != brig.FailedPrecondition {
					t.Errorf("the exec under way: %v", err)
				}
			case <-time.After(promptTimeout):
				t.Error("the exec under way does not end")
			}
			if remaining := processesOfSandbox(t, s.dir, box.ID); len(remaining) > 0 {
				t.Errorf("left: %v", remaining)
			}
			if x, err := svc.GetExec(ctx, box.Spec.Name, res.ExecID); err != nil || !x.Done || x.ExitCode != 0 {
				t.Errorf("GetExec = %+v, %v", x, err)
			}
			if log := readLog(t, svc, box.Spec.Name, 0); !strings.Contains(log, "last words\n") {
				t.Errorf("the log is %q", log)
			}
			if res, err := svc.Exec(ctx, neighbour.Spec.Name, brig.Command{Shell: "echo hi"}, brig.IO{}); err != nil || string(res.Stdout.Head) != "hi\n" {
				t.Errorf("the neighbour: %+v, %v", res, err)
			}
			if err := svc.Remove(ctx, box.Spec.Name); err != nil {
				t.Error(err)
			}
		})
	}
	if err := svc.Remove(ctx, "neighbour"); err != nil {
		t.Error(err)
	}
	checkOnlyPool(t, s)
}

// TestStoppedServerKeepsSandboxes verifies that a server that is stopped while a program runs exits with code 0,
// that its sandboxes continue to run, and that its one-shot runs end.
//
//suite:part crash
func TestStoppedServerKeepsSandboxes(t *testing.T) {
	s := startServer(t, dataDir(t))
	svc := s.client()
	box, err := svc.Create(t.Context(), brig.Spec{Name: "box"})
	if err != nil {
		t.Fatal(err)
	}
	began := make(chan string, 1)
	under := make(chan error, 1)
	go func() {
		_, err := svc.Run(t.Context(), brig.Program{Command: []string{"sleep", "600"}, Timeout: time.Hour}, brig.IO{Started: func(id string) { began <- id }})
		under <- err
	}()
	<-began
	start := time.Now()
	if err := s.stop(); err != nil {
		t.Errorf("stop: %v: %s", err, s.errs)
	}
	t.Logf("stopped in %v", time.Since(start).Round(time.Millisecond))
	if took := time.Since(start); took > promptTimeout {
		t.Errorf("it took %v to stop", took)
	}
	if err := <-under; err == nil {
		t.Error("a one-shot that was cut off says that all went well")
	}
	sentry := processOf(t, s.dir, box.ID, "runsc-sandbox")
	for deadline := time.Now().Add(tracesTimeout); len(folders(t, s.dir)) > 1 || len(processesOfSandbox(t, s.dir, box.ID)) < len(processes(t, s.dir)); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Errorf("of a one-shot there is still %v, %v", folders(t, s.dir), processes(t, s.dir))
			break
		}
	}
	s = startServer(t, s.dir)
	svc = s.client()
	if res, err := svc.Exec(t.Context(), "box", brig.Command{Shell: "echo hi"}, brig.IO{}); err != nil || string(res.Stdout.Head) != "hi\n" {
		t.Errorf("after the restart: %+v, %v", res, err)
	}
	if processOf(t, s.dir, box.ID, "runsc-sandbox") != sentry {
		t.Error("the sandbox is another one")
	}
	if err := svc.Remove(t.Context(), "box"); err != nil {
		t.Error(err)
	}
	checkOnlyPool(t, s)
}

// TestSecondServerIsRejected verifies that a second server on a data folder does not start, reports the
// reason, and does not change any state.
//
//suite:part crash
func TestSecondServerIsRejected(t *testing.T) {
	s := startServer(t, dataDir(t))
	svc := s.client()
	if _, err := svc.Create(t.Context(), brig.Spec{Name: "box"}); err != nil {
		t.Fatal(err)
	}
	var errs bytes.Buffer
	second := exec.Command(bin(t, "brig"), "serve", "--listen", "127.0.0.1:0", "--data-dir", s.dir)
	second.Stderr = &errs
	if err := second.Start(); err != nil {
		t.Fatal(err)
	}
	guard := time.AfterFunc(2*promptTimeout, func() { _ = second.Process.Kill() })
	err := second.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); !guard.Stop() || !ok || exit.ExitCode() <= 0 {
		t.Errorf("the second server: %v", err)
	}
	if !strings.Contains(errs.String(), "another brig process uses the data folder") {
		t.Errorf("it says %q", errs.String())
	}
	if res, err := svc.Exec(t.Context(), "box", brig.Command{Shell: "echo hi"}, brig.IO{}); err != nil || string(res.Stdout.Head) != "hi\n" {
		t.Errorf("the first server: %+v, %v", res, err)
	}
	if err := svc.Remove(t.Context(), "box"); err != nil {
		t.Error(err)
	}
	checkOnlyPool(t, s)
}

// TestCrashDuringRemoval verifies recovery from a server crash during a removal, after only some
// of the files were removed. The next server removes the remaining files when the sandbox is
// removed again.
//
//suite:part crash
func TestCrashDuringRemoval(t *testing.T) {
	dir := dataDir(t)
	srv := startServer(t, dir)
	box, err := srv.client().Create(t.Context(), brig.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := srv.client().Stop(t.Context(), string(box.ID), 0); err != nil {
		t.Fatal(err)
	}
	srv.kill()
	if err := os.Remove(filepath.Join(dir, "sandboxes", string(box.ID), "order.json")); err != nil {
		t.Fatal(err)
	}
	srv = startServer(t, dir)
	if err := srv.client().Remove(t.Context(), string(box.ID)); err != nil {
		t.Fatal(err)
	}
	if err := srv.stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	checkNoHostTraces(t, dir)
}
