package e2e

import (
	"fmt"
	"net"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/attack"
)

// endings returns programs that end in every possible way.
func endings() []sortedProgram {
	list := []sortedProgram{
		python("success", "print('begun')"),
		python("failure", "print('begun')\nraise SystemExit(3)"),
		python("an exception", "print('begun')\nraise ValueError()"),
		python("children left behind", "import os,time\nprint('begun')\nif os.fork()==0: os.setsid(); time.sleep(600)"),
		{sort: "no such program", p: brig.Program{Command: []string{"no-such-program"}}},
		{sort: "no such image", p: brig.Program{Command: []string{"true"}, Image: "no-such-image"}},
		{sort: "a syntax error", p: brig.Program{Language: brig.Python, Code: "def"}},
	}
	list = append(list, stubbornPrograms()[0], memoryPrograms()[0], selfKillingPrograms()[0])
	for i := range list {
		list[i].p.Timeout = 3 * time.Second
	}
	return list
}

// TestRunsLeaveNoTraces verifies that a one-shot run leaves no traces on the host after the
// response, however its program ends.
//
//suite:part core
func TestRunsLeaveNoTraces(t *testing.T) {
	s := startServer(t, dataDir(t))
	svc := s.client()
	for _, x := range endings() {
		o, err := svc.Run(t.Context(), x.p, brig.IO{})
		if o == nil && err == nil {
			t.Errorf("%s: neither an outcome nor an error", x.sort)
		}
		remaining := traces(t, s.dir, s.cmd.Process.Pid)
		if len(remaining) > 0 {
			t.Logf("%s: when the answer came there was still: %s", x.sort, strings.Join(remaining, "\n"))
		}
		checkOnlyPool(t, s)
	}
	if page, err := svc.List(t.Context(), brig.ListOptions{}); err != nil || len(page.Sandboxes) > 0 {
		t.Errorf("on record: %+v, %v", page, err)
	}
}

// begun waits until a sandbox of a data folder has started.
func begun(t *testing.T, dir string) {
	t.Helper()
	for deadline := time.Now().Add(60 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		for _, p := range processes(t, dir) {
			if strings.Contains(p.Cmdline, "brig-agent") || strings.HasPrefix(p.Cmdline, "runsc-sandbox") {
				return
			}
		}
	}
	t.Fatal("no sandbox began")
}

// TestDisconnectEndsRuns verifies that a one-shot run ends if its client disconnects at any
// moment. The client closes the connection, or is a brig command that is killed, with and without
// a server.
//
//suite:part core
func TestDisconnectEndsRuns(t *testing.T) {
	moments := []time.Duration{0, 20 * time.Millisecond, 60 * time.Millisecond, 150 * time.Millisecond, 400 * time.Millisecond}
	t.Run("connection closed", func(t *testing.T) {
		s := startServer(t, dataDir(t))
		body := `{"command":["/bin/sh","-c","setsid sleep 600 & sleep 600"],"timeout_ms":600000}`
		for _, after := range moments {
			c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(c, "POST /v1/run HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
				strings.TrimPrefix(s.url, "http://"), s.key, len(body), body)
			begun(t, s.dir)
			time.Sleep(after)
			c.Close()
			checkOnlyPool(t, s)
		}
		if page, err := s.client().List(t.Context(), brig.ListOptions{}); err != nil || len(page.Sandboxes) > 0 {
			t.Errorf("on record: %+v, %v", page, err)
		}
	})
	killed := func(t *testing.T, dir string, except ...int) {
		for _, after := range moments {
			cmd := exec.Command(bin(t, "brig"), "run", "--data-dir", dir, "--timeout", "10m", "--", "/bin/sh", "-c", "setsid sleep 600 & sleep 600")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			begun(t, dir)
			time.Sleep(after)
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			checkNoHostTraces(t, dir, except...)
		}
	}
	t.Run("command line killed", func(t *testing.T) { killed(t, t.TempDir()) })
	t.Run("command line of a server killed", func(t *testing.T) {
		s := startServer(t, dataDir(t), "--pool", "0") // pooled sandboxes would count as traces
		killed(t, s.dir, s.cmd.Process.Pid)
	})
	t.Run("command line interrupted", func(t *testing.T) {
		dir := t.TempDir()
		cmd := exec.Command(bin(t, "brig"), "run", "--data-dir", dir, "--", "sleep", "600")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		begun(t, dir)
		_ = cmd.Process.Signal(syscall.SIGINT)
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		select {
		case err := <-ended:
			if err == nil {
				t.Error("an interrupted run says that all went well")
			}
		case <-time.After(promptTimeout):
			t.Error("it does not end")
			_ = cmd.Process.Kill()
		}
		checkNoHostTraces(t, dir)
	})
}

// TestTracesOfRunningSandboxAreFound is the control for all tests that search for traces: the
// search must find the traces of a running sandbox.
//
//suite:part core
func TestTracesOfRunningSandboxAreFound(t *testing.T) {
	needRoot(t)
	attack.Mutant(t, "RES-10", "a sandbox that lives", "its end")
	e, ctx := newEngine(t)
	s, err := e.Create(ctx, brig.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Join(traces(t, dataDirOf(t, e)), "\n")
	for _, want := range []string{"process ", "brig-shim", "runsc-sandbox", "cgroup ", "folder " + string(s.ID)} {
		if !strings.Contains(all, want) {
			t.Errorf("no %q among the traces of a living sandbox:\n%s", want, all)
		}
	}
	if err := e.Remove(ctx, s.Spec.Name); err != nil {
		t.Fatal(err)
	}
	checkNoHostTraces(t, dataDirOf(t, e))
}
