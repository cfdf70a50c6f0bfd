package providertest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// lineProcess is a process that executes lines and acknowledges each. It is a
// shell on real instances, and otherwise the fake's interpreter.
type lineProcess struct {
	brig.Process
	real bool
	id   string
}

// shell executes one line at a time, read from descriptor 3.
const shell = `trap : INT; echo ready >&3; while read -r line <&3; do eval "$line"; echo done >&3; done`

func start(t *testing.T, h Harness, in brig.Instance) *lineProcess {
	t.Helper()
	id := newExecID()
	p, err := in.Start(t.Context(), id, brig.Command{Argv: []string{"/bin/sh", "-c", shell}}, brig.Streams{Channel: true})
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	t.Cleanup(func() { p.Close() })
	talk := &lineProcess{p, h.Real, id}
	talk.until(t, "ready", nil)
	return talk
}

// send sends a line, in the version for a real instance or for the fake.
func (p *lineProcess) send(t *testing.T, real, fake string) {
	t.Helper()
	b := []byte(real)
	if !p.real {
		b = fmt.Appendf(nil, `{"op":"cell","code":%q}`, fake) // for these lines, %q produces valid JSON
	}
	if err := p.Send(b); err != nil {
		t.Fatalf("send %q: %v", b, err)
	}
}

// word returns the text of a message. For the fake, it returns the message's
// type and text.
func (p *lineProcess) word(b []byte) string {
	var m struct {
		Type, Name string
		Data       map[string]string
	}
	if p.real || json.Unmarshal(b, &m) != nil {
		return string(b)
	}
	return strings.TrimSpace(strings.Replace(m.Type, "end", "done", 1) + " " + m.Name + m.Data["text/plain"])
}

// until receives messages until a message begins with last, and returns all
// messages in order. It joins consecutive parts of one stream. If the message
// never arrives, the expiry of the instance's lease ends the test.
func (p *lineProcess) until(t *testing.T, last string, also func(word string)) []string {
	t.Helper()
	var got []string
	for {
		from, b, err := p.Receive()
		if err != nil {
			t.Fatalf("receive until %q: %v; before that came %.200q", last, err, got)
		}
		switch n := len(got) - 1; from {
		case brig.FromMessage:
			word := p.word(b)
			got = append(got, "message "+word)
			if also != nil {
				also(word)
			}
			if strings.HasPrefix(word, last) {
				return got
			}
		case brig.FromStdout, brig.FromStderr:
			name := map[brig.From]string{brig.FromStdout: "stdout ", brig.FromStderr: "stderr "}[from]
			if n >= 0 && strings.HasPrefix(got[n], name) {
				got[n] += string(b)
			} else {
				got = append(got, name+string(b))
			}
		default:
			t.Fatalf("something came from %d", from)
		}
	}
}

// do runs a line, and returns the resulting messages without the
// acknowledgment.
func (p *lineProcess) do(t *testing.T, real, fake string) []string {
	t.Helper()
	p.send(t, real, fake)
	got := p.until(t, "done", nil)
	return slices.DeleteFunc(got, func(s string) bool { return s == "message started" || s == "message done" })
}

// toEnd receives all remaining messages, and returns the process's result.
func (p *lineProcess) toEnd(t *testing.T) *brig.Result {
	t.Helper()
	ended := make(chan error, 1)
	go func() {
		for {
			if _, _, err := p.Receive(); err != nil {
				ended <- err
				return
			}
		}
	}()
	select {
	case err := <-ended:
		if !errors.Is(err, io.EOF) {
			t.Fatalf("the last word is %v, want EOF", err)
		}
	case <-time.After(waitTimeout):
		t.Fatalf("no end after %v", waitTimeout)
	}
	res, err := p.Wait(t.Context())
	if err != nil || !res.Done {
		t.Fatalf("it ended with %+v, %v", res, err)
	}
	return res
}

func testProcess(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	p := start(t, h, in)
	for range 50 { // output written before a message must arrive before the message
		if got := p.do(t, "echo a; echo said >&3", "set x said\necho a\nget x"); len(got) != 2 || got[0] != "stdout a\n" || !strings.HasSuffix(got[1], "said") {
			t.Fatalf("it said %q", got)
		}
	}
	if got := p.do(t, "echo oh >&2", "stderr oh"); len(got) != 1 || got[0] != "stderr oh\n" {
		t.Errorf("it said %q", got)
	}
	const n = 300_000 // larger than any pipe's buffer
	if got := p.do(t, "head -c 300000 /dev/zero | tr '\\0' x", "spew 300000"); len(got) != 1 || got[0] != "stdout "+strings.Repeat("x", n) {
		t.Errorf("of %d bytes %d came before the end", n, len(strings.Join(got, "")))
	}
	ctx, cancel := timeout(t, 50*time.Millisecond)
	defer cancel()
	if res, err := p.Wait(ctx); err == nil {
		t.Errorf("it has not ended, and Wait says %+v", res)
	}
	// Two processes do not affect each other.
	q := start(t, h, in)
	p.do(t, "x=p", "set x p")
	q.do(t, "x=q", "set x q")
	for _, c := range []struct {
		*lineProcess
		want string
	}{{p, "p"}, {q, "q"}} {
		if got := c.do(t, `echo "$x" >&3`, "get x"); len(got) != 1 || !strings.HasSuffix(got[0], " "+c.want) {
			t.Errorf("x is %q, want %q", got, c.want)
		}
	}
	if _, err := in.Start(t.Context(), newExecID(), brig.Command{Argv: []string{"missing"}}, brig.Streams{Channel: true}); brig.AsError(err) == nil || brig.AsError(err).Field != "command" {
		t.Errorf("a program that is not there: %v", err)
	}
}

func testProcessStdin(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	p := start(t, h, in)
	data := bytes.Repeat([]byte("0123456789abcdef"), 64<<10)
	go func() {
		_, _ = p.Stdin().Write(data)
		_ = p.Stdin().Close()
	}()
	p.send(t, "cat", "")
	if got := p.until(t, "done", nil); got[0] != "stdout "+string(data) {
		t.Errorf("of %d bytes %d came back", len(data), len(got[0]))
	}
	if got := p.do(t, "cat; echo $?", ""); len(got) != 1 || got[0] != "stdout 0\n" {
		t.Errorf("after its end: %q", got)
	}
}

func testProcessSignal(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	p := start(t, h, in)
	for range 3 {
		begin := time.Now()
		p.send(t, `(trap 'kill $!; exit 0' INT; echo started >&3; sleep 300 & wait)`, "sleep 300")
		p.until(t, "done", func(word string) {
			if word == "started" {
				if err := p.Signal(t.Context(), "SIGINT"); err != nil {
					t.Error(err)
				}
			}
		})
		if took := time.Since(begin); took > 2*promptTimeout {
			t.Errorf("it took %v", took)
		}
	}
	if got := p.do(t, "echo here", "echo here"); len(got) != 1 || got[0] != "stdout here\n" {
		t.Errorf("afterwards it says %q", got)
	}
}

func testProcessKill(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	p := start(t, h, in)
	p.send(t, "(trap '' TERM HUP; setsid sh -c 'sleep 4242 & sleep 4242' & sleep 4242) & echo started >&3; wait", "sleep 300")
	p.until(t, "started", nil)
	if err := p.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if res := p.toEnd(t); res.ExitCode != 137 || h.Real && res.Signal != "SIGKILL" {
		t.Errorf("it ended with %+v", res)
	}
	if h.Real {
		checkNoTree(t, in)
	}
	if err := p.Send([]byte(`{"op":"ping"}`)); err == nil {
		t.Error("it is dead and can be told things")
	}
	alive(t, in)
	start(t, h, in).do(t, "echo again", "echo again")
}

func testProcessEnd(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	p := start(t, h, in)
	p.send(t, "exit 1", "die")
	if res := p.toEnd(t); res.ExitCode != 1 || res.Signal != "" || res.TimedOut || res.OOMKilled {
		t.Errorf("it ended with %+v", res)
	}
	if _, _, err := p.Receive(); !errors.Is(err, io.EOF) {
		t.Errorf("after the end comes %v", err)
	}
	if h.Real { // background processes delay the end only for a limited time
		p = start(t, h, in)
		p.send(t, "sleep 4242 & echo last; exit 3", "")
		if res := p.toEnd(t); res.ExitCode != 3 {
			t.Errorf("it ended with %+v", res)
		}
	}
	// The process ends with its instance.
	p = start(t, h, in)
	if err := in.Stop(t.Context(), 0, brig.Killed); err != nil {
		t.Fatal(err)
	}
	for {
		if _, _, err := p.Receive(); err != nil {
			break
		}
	}
	ctx, cancel := timeout(t, waitTimeout)
	defer cancel()
	if res, err := p.Wait(ctx); err == nil && res.ExitCode == 0 {
		t.Errorf("its machine has ended, and it with %+v", res)
	}
	if ctx.Err() != nil {
		t.Error("its machine has ended, and Wait waits")
	}
}

func testProcessClose(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	p := start(t, h, in)
	got := make(chan error, 1)
	go func() {
		_, _, err := p.Receive()
		got <- err
	}()
	time.Sleep(100 * time.Millisecond) // let the receiver block
	for range 2 {
		_ = p.Close()
	}
	select {
	case err := <-got:
		if err == nil {
			t.Error("Receive of what was closed returns something")
		}
	case <-time.After(waitTimeout):
		t.Error("Receive goes on after Close")
	}
	if _, _, err := p.Receive(); err == nil {
		t.Error("Receive after Close returns something")
	}
	alive(t, in)
}

// testProcessRest checks that output of a child process is received even after the
// process's last message and end.
func testProcessRest(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	for what, end := range map[string]string{"closed": "exec >&- 2>&-; sleep 0.1", "exited": "exit 0"} {
		p := start(t, h, in)
		p.send(t, "(sleep 0.3; echo late; echo error >&2) & echo now; echo bye >&3; "+end, "")
		p.until(t, "bye", nil)
		rest, ok := p.Process.(interface {
			ReceiveRest(deadline time.Time) (brig.From, []byte, error)
		})
		if !ok {
			t.Fatalf("%T has no ReceiveRest", p.Process)
		}
		var got [3]string
		for {
			from, b, err := rest.ReceiveRest(time.Now().Add(waitTimeout))
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			got[from] += string(b)
		}
		if got[brig.FromStdout] != "late\n" || got[brig.FromStderr] != "error\n" {
			t.Errorf("%s: the rest is %q", what, got)
		}
	}
}
