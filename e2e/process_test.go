package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// processEvents collects the events of a process.
type processEvents struct {
	mu             sync.Mutex
	stdout, stderr bytes.Buffer
	end            *brig.Result
	more           chan struct{}
}

func (h *processEvents) record(ev brig.ProcessEvent) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.end = ev.End; ev.From == brig.FromStderr {
		h.stderr.Write(ev.Output)
	} else {
		h.stdout.Write(ev.Output)
	}
	select {
	case h.more <- struct{}{}:
	default:
	}
	return nil
}

// printed returns the output that has been received so far.
func (h *processEvents) printed() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stdout.String()
}

// until waits until the output contains a text.
func (h *processEvents) until(t *testing.T, text string) {
	t.Helper()
	timeout := time.After(2 * promptTimeout)
	for {
		h.mu.Lock()
		out := h.stdout.String()
		h.mu.Unlock()
		if strings.Contains(out, text) {
			return
		}
		select {
		case <-h.more:
		case <-timeout:
			t.Fatalf("%q does not come after %q", text, out)
		}
	}
}

// listen attaches to a process at an offset. The returned channel receives the
// error of Attach.
func listen(ctx context.Context, ps brig.Processes, pid int, from int64) (*processEvents, chan error) {
	h, done := &processEvents{more: make(chan struct{}, 1)}, make(chan error, 1)
	go func() { done <- ps.Attach(ctx, pid, from, h.record) }()
	return h, done
}

// createWithProcesses creates a sandbox and returns its name and processes.
func createWithProcesses(t *testing.T, s brig.Service, ctx context.Context) (name string, ps brig.Processes) {
	t.Helper()
	box, err := s.Create(ctx, brig.Spec{TTL: 10 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return box.Spec.Name, s.Processes(box.Spec.Name)
}

func start(t *testing.T, ctx context.Context, ps brig.Processes, spec brig.ProcessSpec) *brig.ProcessInfo {
	t.Helper()
	p, err := ps.Start(ctx, spec)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func script(s string) brig.ProcessSpec { return brig.ProcessSpec{Command: brig.Command{Shell: s}} }

//suite:part core
func TestProcesses(t *testing.T) {
	e, ctx := newEngine(t)
	_, ps := createWithProcesses(t, e, ctx)

	p := start(t, ctx, ps, brig.ProcessSpec{Command: brig.Command{Shell: "echo out; echo err >&2; cat; exit 3"}, Tag: "one"})
	h, done := listen(ctx, ps, p.PID, 0)
	h.until(t, "out\n")
	if list, err := ps.List(ctx); err != nil || len(list) != 1 || list[0].PID != p.PID || list[0].Spec.Tag != "one" || list[0].Result != nil {
		t.Errorf("List = %+v, %v", list, err)
	}
	if err := ps.WriteInput(ctx, p.PID, []byte("typed\n")); err != nil {
		t.Error(err)
	}
	h.until(t, "typed\n")
	if err := ps.CloseInput(ctx, p.PID); err != nil {
		t.Error(err)
	}
	// The second call has no effect, or fails because the process has ended.
	if err := ps.CloseInput(ctx, p.PID); err != nil && brig.KindOf(err) != brig.NotFound {
		t.Error(err)
	}
	if err := <-done; err != nil || h.end == nil || h.end.ExitCode != 3 || h.stdout.String() != "out\ntyped\n" || h.stderr.String() != "err\n" {
		t.Errorf("Attach = %v: %q %q %+v", err, &h.stdout, &h.stderr, h.end)
	}
	// A client that attaches later can read the output from any offset.
	h, done = listen(ctx, ps, p.PID, 4)
	if err := <-done; err != nil || h.stdout.String()+h.stderr.String() != "typed\nerr\n" && h.stdout.String() != "typed\n" {
		t.Errorf("late: %v %q %q", err, &h.stdout, &h.stderr)
	}
	for what, err := range map[string]error{
		"input":  ps.WriteInput(ctx, p.PID, []byte("x")),
		"signal": ps.Signal(ctx, p.PID, "SIGTERM"),
		"nobody": ps.Signal(ctx, 999_999, "SIGTERM"),
		"attach": ps.Attach(ctx, 999_999, 0, h.record),
		"missing": func() error {
			_, err := ps.Start(ctx, brig.ProcessSpec{Command: brig.Command{Argv: []string{"missing"}}})
			return err
		}(),
	} {
		want := brig.NotFound
		if what == "missing" {
			want = brig.InvalidArgument
		}
		if brig.KindOf(err) != want {
			t.Errorf("%s: %v", what, err)
		}
	}

	// Attach waits only for processes that hold the output open.
	p = start(t, ctx, ps, script("(sleep 0.5; echo late) & echo now"))
	h, done = listen(ctx, ps, p.PID, 0)
	if err := <-done; err != nil || h.stdout.String() != "now\nlate\n" || h.end.ExitCode != 0 {
		t.Errorf("with a child: %v %q %+v", err, &h.stdout, h.end)
	}
	if p = start(t, ctx, ps, brig.ProcessSpec{Command: brig.Command{Shell: "ls /proc/self/fd; cat"}, NoInput: true}); true {
		h, done = listen(ctx, ps, p.PID, 0)
		if err := <-done; err != nil || h.stdout.String() != "0\n1\n2\n3\n" {
			t.Errorf("without input, and ls has one open: %v %q", err, &h.stdout)
		}
	}
	for _, c := range []struct {
		signal, want string
		code         int
	}{{"SIGTERM", "SIGTERM", 143}, {"SIGKILL", "SIGKILL", 137}} {
		p = start(t, ctx, ps, script("setsid sleep 1000 & echo up; sleep 1000"))
		h, done = listen(ctx, ps, p.PID, 0)
		h.until(t, "up")
		if err := ps.Signal(ctx, p.PID, c.signal); err != nil {
			t.Error(err)
		}
		if c.signal == "SIGTERM" {
			continue // the process in its own session holds the pipe open
		}
		if err := <-done; err != nil || h.end.Signal != c.want || h.end.ExitCode != c.code {
			t.Errorf("%s: %v %+v", c.signal, err, h.end)
		}
	}
	spec := script("echo up; sleep 1000")
	spec.Command.Timeout = 500 * time.Millisecond
	h, done = listen(ctx, ps, start(t, ctx, ps, spec).PID, 0)
	if err := <-done; err != nil || !h.end.TimedOut || h.end.ExitCode != 124 {
		t.Errorf("timed out: %v %+v", err, h.end)
	}
}

//suite:part core
func TestTerminal(t *testing.T) {
	e, ctx := newEngine(t)
	_, ps := createWithProcesses(t, e, ctx)
	p := start(t, ctx, ps, brig.ProcessSpec{
		Command:  brig.Command{Argv: []string{"/bin/bash", "-i"}, Env: map[string]string{"TERM": "xterm", "PS1": "> "}},
		Terminal: &brig.Terminal{Columns: 80, Rows: 24},
	})
	h, done := listen(ctx, ps, p.PID, 0)
	other, otherDone := listen(ctx, ps, p.PID, 0)
	say := func(s string) {
		t.Helper()
		if err := ps.WriteInput(ctx, p.PID, []byte(s)); err != nil {
			t.Fatal(err)
		}
	}
	say("stty size; tty; echo $TERM\n")
	h.until(t, "24 80\r\n/dev/pts/")
	other.until(t, "24 80\r\n")
	// Before it prints a prompt, readline reads the size and writes it back, which would undo a
	// concurrent Resize.
	h.until(t, "\r\nxterm\r\n\x1b[?2004h> ")
	if err := ps.Resize(ctx, p.PID, brig.Terminal{Columns: 100, Rows: 30}); err != nil {
		t.Error(err)
	}
	say("stty size\n")
	h.until(t, "30 100\r\n")
	// A program that prints is the terminal's foreground job: Ctrl-C then sends it a signal, and
	// is not a key for readline.
	say("sh -c 'echo go$((1+1)); exec sleep 1000'\n")
	h.until(t, "go2\r\n")
	say("\x03") // Ctrl-C
	say("echo so$((40+2))\n")
	h.until(t, "so42\r\n")
	if err := ps.CloseInput(ctx, p.PID); brig.KindOf(err) != brig.FailedPrecondition {
		t.Errorf("CloseInput of a terminal: %v", err)
	}
	say("exit 5\n")
	if err := <-done; err != nil || h.end.ExitCode != 5 || h.stderr.Len() > 0 {
		t.Errorf("Attach = %v, %+v, stderr %q", err, h.end, &h.stderr)
	}
	if err := <-otherDone; err != nil || other.end.ExitCode != 5 {
		t.Errorf("the other: %v, %+v", err, other.end)
	}
}

// TestProcessOutlivesServer verifies that a process outlives its server and is listed by the next
// server.
//
//suite:part crash
func TestProcessOutlivesServer(t *testing.T) {
	dir := dataDir(t)
	s := startServer(t, dir)
	e := s.client()
	box, err := e.Create(t.Context(), brig.Spec{Name: "box", TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	ps := e.Processes(box.Spec.Name)
	p, err := ps.Start(t.Context(), brig.ProcessSpec{Command: brig.Command{Shell: "while read x; do echo got $x; done; exit 9"}, Tag: "it"})
	if err != nil {
		t.Fatal(err)
	}
	h, done := listen(t.Context(), ps, p.PID, 0)
	if err := ps.WriteInput(t.Context(), p.PID, []byte("1\n")); err != nil {
		t.Fatal(err)
	}
	h.until(t, "got 1")
	time.Sleep(time.Second) // wait until the process is recorded
	s.kill()
	if err := <-done; err == nil {
		t.Error("nobody was told that the server died")
	}
	s = startServer(t, dir)
	ps = s.client().Processes("box")
	list, err := ps.List(t.Context())
	if err != nil || len(list) != 1 || list[0].PID != p.PID || list[0].Spec.Tag != "it" {
		t.Fatalf("List = %+v, %v", list, err)
	}
	h, done = listen(t.Context(), ps, p.PID, 0)
	if err := ps.WriteInput(t.Context(), p.PID, []byte("2\n")); err != nil {
		t.Fatal(err)
	}
	h.until(t, "got 2")
	if err := ps.CloseInput(t.Context(), p.PID); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil || h.end.ExitCode != 9 {
		t.Errorf("Attach = %v, %+v", err, h.end)
	}
}

//suite:part core
func TestDial(t *testing.T) {
	e, ctx := newEngine(t)
	name, ps := createWithProcesses(t, e, ctx)
	const server = `
import socket
s = socket.socket(); s.bind(("127.0.0.1", 8000)); s.listen()
print("up", flush=True)
while True:
    c, _ = s.accept()
    data = b""
    while True:
        p = c.recv(65536)
        if not p: break
        data += p
    c.sendall(b"%d bytes" % len(data)); c.close()
`
	p := start(t, ctx, ps, brig.ProcessSpec{Command: brig.Command{Argv: []string{"python3", "-c", server}}})
	h, _ := listen(ctx, ps, p.PID, 0)
	h.until(t, "up")
	var calls sync.WaitGroup
	for i := range 20 {
		calls.Go(func() {
			c, err := e.Dial(ctx, name, 8000)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			n := 1 + i*50_000
			if _, err := c.Write(make([]byte, n)); err != nil {
				t.Error(err)
			}
			if half, ok := c.(interface{ CloseWrite() error }); !ok || half.CloseWrite() != nil {
				t.Error("it cannot be half closed")
			}
			if b, err := io.ReadAll(c); err != nil || string(b) != fmt.Sprintf("%d bytes", n) {
				t.Errorf("the answer is %q, %v", b, err)
			}
		})
	}
	calls.Wait()
	for _, port := range []int{8001, 0, 70_000} {
		c, err := e.Dial(ctx, name, port)
		want := brig.ConnectionFailed
		if port != 8001 {
			want = brig.InvalidArgument
		}
		if brig.KindOf(err) != want {
			t.Errorf("port %d: %v", port, err)
		}
		if err == nil {
			c.Close()
		}
	}
}
