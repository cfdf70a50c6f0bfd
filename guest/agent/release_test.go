package agent

import (
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brig-run/brig/guest/wire"
)

// withExecution returns an agent with one execution, whose process has the given id. The process
// was started on descriptors of the host. With a message channel, it is an interpreter.
func withExecution(leader int, channel bool) (*Agent, *execution) {
	a := &Agent{execs: map[string]*execution{}, tag: firstTag}
	x, err := a.register(wire.Exec{ID: "x", Argv: []string{"python3"}, Donated: true, Plain: !channel})
	if err != nil {
		panic(err)
	}
	x.leader = leader
	x.allowPark()
	return a, x
}

// endedProcess returns the id of a process that has ended and was waited for by its parent.
func endedProcess(t *testing.T) int {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid
}

// askRelease sends a control message before a save, and returns a channel with the agent's
// response.
func askRelease(t *testing.T, a *Agent, op byte) <-chan wire.Release {
	t.Helper()
	ours, theirs := net.Pipe()
	t.Cleanup(func() { ours.Close() })
	go func() {
		if err := a.closeHostDescriptors(op, 7, theirs); err != nil {
			t.Error(err)
		}
		theirs.Close()
	}()
	response := make(chan wire.Release, 1)
	go func() {
		var r wire.Release
		if err := json.NewDecoder(ours).Decode(&r); err != nil {
			t.Error(err)
		}
		response <- r
	}()
	return response
}

// A process ends shortly before its end is recorded. In between it does not prevent a save, and a
// release waits for the record.
func TestUnrecordedEndDoesNotPreventSave(t *testing.T) {
	for _, channel := range []bool{true, false} {
		leader := endedProcess(t)
		synctest.Test(t, func(t *testing.T) {
			a, x := withExecution(leader, channel)
			if r := <-askRelease(t, a, wire.ControlCheck); len(r.Holders) > 0 {
				t.Errorf("with a channel %v, the check lists %+v", channel, r.Holders)
			}
			response := askRelease(t, a, wire.ControlRelease)
			synctest.Wait()
			select {
			case r := <-response:
				t.Errorf("with a channel %v, the release does not wait for the record: %+v", channel, r.Holders)
			default:
				x.finish(0)
				if r := <-response; len(r.Holders) > 0 {
					t.Errorf("with a channel %v, the release lists %+v", channel, r.Holders)
				}
			}
		})
	}
}

// An interpreter whose host has closed its streams exits by itself. A release waits for the exit
// for a limited time.
func TestReleaseWaitsForUnusedInterpreter(t *testing.T) {
	for _, ends := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			a, x := withExecution(os.Getpid(), true)
			response := askRelease(t, a, wire.ControlRelease)
			synctest.Wait()
			if ends {
				x.finish(0)
			}
			switch r := <-response; {
			case ends && listsTestProcess(r):
				t.Errorf("it has ended, and the release lists %+v", r.Holders)
			case !ends && !listsTestProcess(r):
				t.Errorf("it runs, and the release lists %+v", r.Holders)
			}
		})
	}
}

// A program that runs on streams of the host prevents a save. The response does not wait for its
// end.
func TestRunningProgramPreventsSave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := withExecution(os.Getpid(), false)
		for _, op := range []byte{wire.ControlCheck, wire.ControlRelease} {
			response := askRelease(t, a, op)
			synctest.Wait()
			select {
			case r := <-response:
				if !listsTestProcess(r) {
					t.Errorf("request %d: the answer lists %+v", op, r.Holders)
				}
			default:
				t.Fatalf("request %d: there is no answer", op)
			}
		}
	})
}

// listsTestProcess reports whether a release lists the process of the test. Other processes of
// the machine do not matter.
func listsTestProcess(r wire.Release) bool {
	for _, h := range r.Holders {
		if h.PID == os.Getpid() && strings.Contains(h.Reason, "streams") {
			return true
		}
	}
	return false
}

// A kill ends only when the end of the process is recorded. The caller may save the
// sandbox next.
func TestKillWaitsForRecord(t *testing.T) {
	leader := endedProcess(t)
	synctest.Test(t, func(t *testing.T) {
		a, x := withExecution(leader, true)
		killed := make(chan error, 1)
		go func() { killed <- a.kill(wire.Kill{ID: "x"}) }()
		synctest.Wait()
		select {
		case err := <-killed:
			t.Fatalf("it does not wait for the record: %v", err)
		default:
		}
		x.finish(syscall.WaitStatus(syscall.SIGKILL))
		if err := <-killed; err != nil {
			t.Error(err)
		}
	})
}

// If an interpreter ends while it is being parked, its end is reported to its new holders.
func TestEndWhileParkingIsReported(t *testing.T) {
	for range 50 { // the agent may receive the two events in either order
		synctest.Test(t, func(t *testing.T) {
			_, x := withExecution(os.Getpid(), true)
			k := &carrier{x: x, exited: make(chan struct{})}
			ended, parked := make(chan syscall.WaitStatus, 1), x.parked
			if !x.giveTo(k) {
				t.Fatal("it cannot be parked")
			}
			ended <- 0
			x.reportExit(ended, parked, &writer{dead: true})
			synctest.Wait()
			if !isClosed(k.exited) {
				t.Fatal("its holders do not learn of its end")
			}
		})
	}
}

// An interpreter that ends while the agent waits for it to open its pipes is reported as ended
// immediately.
func TestParkReportsEndingInterpreter(t *testing.T) {
	a, x := withExecution(endedProcess(t), true)
	x.call.UID, x.call.GID = uint32(os.Getuid()), uint32(os.Getgid())
	ours, theirs := net.Pipe()
	parked := make(chan struct{})
	go func() {
		defer close(parked)
		a.park("x", &writer{c: theirs})
	}()
	defer func() {
		ours.Close()
		<-parked // it removes its directory
	}()
	r := wire.NewReader(ours)
	if f, err := r.Read(); err != nil || f.Type != wire.TypeParking {
		t.Fatalf("it answers %+v, %v", f, err)
	}
	ended := time.Now()
	x.finish(0)
	f, err := r.Read()
	if took := time.Since(ended); took >= parkTimeout-time.Second {
		t.Errorf("it waits for an answer for %v", took)
	}
	var e wire.Error
	if err != nil || f.Type != wire.TypeError || json.Unmarshal(f.Payload, &e) != nil || e.Kind != "not_found" {
		t.Errorf("it answers %d %q, %v", f.Type, f.Payload, err)
	}
}
