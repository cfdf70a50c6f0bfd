package supervisor

import (
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/brig-run/brig/guest/wire"
	"github.com/brig-run/brig/provider/providertest"
)

// build creates a machine, which exists until its creator, the test, ends.
func build(t *testing.T, k *Supervisor, dial func() *net.UnixConn, id string, m wire.Make) {
	t.Helper()
	program, err := os.Open(providertest.Agent(t))
	if err != nil {
		t.Fatal(err)
	}
	maker := dial()
	t.Cleanup(func() {
		maker.Close()
		program.Close()
	})
	k.program, k.plain = program, !isPrivileged()
	m.Hostname, m.LeaseMS = id, time.Minute.Milliseconds()
	if err := wire.WriteJSON(maker, wire.TypeOrder, wire.SupervisorRequest{Version: wire.SupervisorVersion, Op: wire.SupervisorCreate, ID: id, Make: &m}); err != nil {
		t.Fatal(err)
	}
	if f, err := wire.NewReader(maker).Read(); err != nil || f.Type != wire.TypeState {
		t.Fatalf("make: %v, %d %s", err, f.Type, f.Payload)
	}
}

// A client may start a machine's main program as soon as it has the State, even before the
// supervisor has received the acknowledgment.
func TestMainStartsBeforeAck(t *testing.T) {
	k, dial := serveEmpty(t)
	main := &wire.Exec{ID: "main", Argv: []string{"/bin/sh", "-c", "exit 3"}}
	build(t, k, dial, "told", wire.Make{Main: main, Held: true})
	if f := sendRequest(t, dial(), wire.SupervisorRequest{Op: wire.SupervisorStartMain, ID: "told", Linger: true}); f.Type != wire.TypeOK {
		t.Fatalf("begin: %d %s", f.Type, f.Payload)
	}
	over := dial()
	if err := over.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if f := sendRequest(t, over, wire.SupervisorRequest{Op: wire.SupervisorWaitMain, ID: "told"}); f.Type != wire.TypeOK {
		t.Errorf("over: %d %s", f.Type, f.Payload)
	}
	if f := sendRequest(t, dial(), wire.SupervisorRequest{Op: wire.SupervisorDestroy, ID: "told"}); f.Type != wire.TypeOK {
		t.Errorf("erase: %d %s", f.Type, f.Payload)
	}
}

// The output that a program writes during a stop reaches a slow reader before
// the agent ends. The test writes more than a pipe and a socket can buffer.
func TestLastOutputIsLogged(t *testing.T) {
	k, dial := serveEmpty(t)
	build(t, k, dial, "stopped", wire.Make{})
	c := dial()
	defer c.Close()
	if err := wire.WriteJSON(c, wire.TypeOrder, wire.SupervisorRequest{Version: wire.SupervisorVersion, Op: wire.SupervisorAgent, ID: "stopped"}); err != nil {
		t.Fatal(err)
	}
	script := "trap 'head -c 1000000 /dev/zero; echo bye; exit 3' TERM; echo up; while :; do sleep 0.05; done"
	call := wire.Call{Version: wire.Version, Op: wire.OpExec, Exec: &wire.Exec{ID: "talks", Dir: "/", Argv: []string{"/bin/sh", "-c", script}}}
	if err := wire.WriteJSON(c, wire.TypeCall, call); err != nil {
		t.Fatal(err)
	}
	received := 0
	var stopping sync.WaitGroup
	defer stopping.Wait() // the stop writes to the test's directory
	for r := wire.NewReader(c); ; {
		f, err := r.Read()
		if err != nil {
			t.Fatalf("after %d bytes of output: %v", received, err)
		}
		if f.Type == wire.TypeStdout {
			if received == 0 {
				stopping.Go(func() { k.get("stopped").stop(8*time.Second, "stopped") })
			}
			received += len(f.Payload)
			time.Sleep(10 * time.Millisecond)
		}
		if f.Type == wire.TypeError {
			t.Fatalf("run: %s", f.Payload)
		}
		if f.Type == wire.TypeExit {
			break
		}
	}
	if want := len("up\n") + 1_000_000 + len("bye\n"); received != want {
		t.Errorf("%d bytes of output, want %d", received, want)
	}
}
