package fake

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/interpreter"
	"github.com/brig-run/brig/tool"
)

// process is an interpreter of the small language. It implements the drivers'
// protocol. In addition to the commands of Exec, one per line, it supports:
//
//	set NAME VALUE   keeps a value for later runs
//	get NAME         its value is the result
//	return JSON      a program's value
//	raise NAME TEXT  fails
//	signal CODE N    ends a program with a code and the number of a signal
//	die              ends the interpreter without a message
//	forge LINE       writes a line to the channel, with the nonce for NONCE
//	flood N LINE     does so N times
//	show LENGTH      displays a text
//	deaf SECONDS     sleeps and ignores SIGINT
type process struct {
	in    *instance
	id    string
	pid   int
	user  brig.Command
	vars  map[string]string
	count int
	nonce string // nonce of the current request
	sent  chan part
	calls func(tool.DriverRequest)

	mu        sync.Mutex // guards the fields below
	requests  []interpreter.Request
	wake      chan struct{}
	interrupt context.CancelCauseFunc // cancels the running cell
	gone      chan struct{}
	ended     bool
	ending    []byte // last message of the run, once sent, even if not yet received
	code      int
}

type part struct {
	from brig.From
	b    []byte
}

var (
	_ brig.Process = (*listener)(nil)

	errInterrupted = errors.New("interrupted")
)

// Start implements brig.Instance.
func (in *instance) Start(ctx context.Context, id string, cmd brig.Command, s brig.Streams) (brig.Process, error) {
	if len(cmd.Argv) > 0 && cmd.Argv[0] == "missing" {
		return nil, brig.InvalidField("command", "no program %q", cmd.Argv[0])
	}
	if !s.Channel {
		return in.startPlain(ctx, id, cmd), nil
	}
	p := &process{
		in: in, id: id, pid: int(in.pids.Add(1)), user: cmd, vars: map[string]string{}, sent: make(chan part, 16),
		wake: make(chan struct{}, 1), gone: make(chan struct{}),
	}
	ctx = context.WithoutCancel(ctx)
	p.calls = func(o tool.DriverRequest) { p.call(ctx, o) }
	go p.serve(ctx)
	return &listener{process: p, closed: make(chan struct{})}, nil
}

// Send implements brig.Process.
func (p *process) Send(message []byte) error {
	var (
		o    interpreter.Request
		call tool.DriverRequest
	)
	if json.Unmarshal(message, &call) == nil && call.Key != "" {
		go p.calls(call)
		return nil
	}
	if err := json.Unmarshal(message, &o); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return io.ErrClosedPipe
	}
	p.requests = append(p.requests, o)
	select {
	case p.wake <- struct{}{}:
	default:
	}
	return nil
}

// listener is one server's end of a process that outlives the server. It
// implements brig.Process.
type listener struct {
	*process
	closed chan struct{}
	once   sync.Once
}

// Receive implements brig.Process.
func (p *listener) Receive() (brig.From, []byte, error) {
	select {
	case m := <-p.sent:
		return m.from, m.b, nil
	case <-p.closed:
		return 0, nil, net.ErrClosed
	case <-p.gone:
	case <-p.in.done:
	}
	select {
	case m := <-p.sent:
		return m.from, m.b, nil
	default:
		return 0, nil, io.EOF
	}
}

// Ahead returns the last message of the run once it was sent, even if it was
// not received yet.
func (p *process) Ahead() (sent []byte, ended bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ending, p.ended
}

// PID implements brig.Process.
func (p *process) PID() int { return p.pid }

// Resize implements brig.Process.
func (p *process) Resize(context.Context, brig.Terminal) error { return nil }

// Stdin implements brig.Process.
func (p *process) Stdin() io.WriteCloser { return discardInput{} }

type discardInput struct{}

// Write implements io.Writer.
func (discardInput) Write(b []byte) (int, error) { return len(b), nil }

// Close implements io.Closer.
func (discardInput) Close() error { return nil }

// Signal implements brig.Process.
func (p *process) Signal(_ context.Context, name string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if name == "SIGINT" && p.interrupt != nil {
		p.interrupt(errInterrupted)
	}
	return nil
}

// Kill implements brig.Process.
func (p *process) Kill(context.Context) error {
	p.end(137)
	return nil
}

func (p *process) end(code int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ended {
		p.ended, p.code = true, code
		close(p.gone)
	}
}

// Wait implements brig.Process.
func (p *process) Wait(ctx context.Context) (*brig.Result, error) {
	select {
	case <-p.gone:
		return &brig.Result{ExecID: p.id, Done: true, ExitCode: p.code}, nil
	case <-p.in.done:
		return nil, errors.New("the machine is gone")
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Close implements brig.Process.
func (p *listener) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// serve executes requests until the process or its instance ends.
func (p *process) serve(ctx context.Context) {
	p.send(interpreter.Message{Type: "ready", Flavor: "fake", Version: "1", Nonces: true})
	for {
		o, ok := p.next()
		if !ok {
			return
		}
		p.nonce = o.Nonce
		switch o.Op {
		case "ping":
			p.send(interpreter.Message{Type: "pong"})
		case "warm":
		default:
			p.execute(ctx, o)
		}
	}
}

func (p *process) next() (interpreter.Request, bool) {
	for {
		p.mu.Lock()
		if len(p.requests) > 0 {
			o := p.requests[0]
			p.requests = p.requests[1:]
			p.mu.Unlock()
			return o, true
		}
		p.mu.Unlock()
		select {
		case <-p.wake:
		case <-p.gone:
			return interpreter.Request{}, false
		case <-p.in.done:
			return interpreter.Request{}, false
		}
	}
}

func (p *process) execute(ctx context.Context, o interpreter.Request) {
	ctx, cancel := context.WithCancelCause(ctx)
	p.mu.Lock()
	p.interrupt, p.ending = cancel, nil
	p.mu.Unlock()
	p.count++
	if o.Op == "cell" {
		p.send(interpreter.Message{Type: "started", Count: p.count})
	}
	end := interpreter.Message{Type: "end"}
	for line := range strings.Lines(o.Code) {
		if words := strings.Fields(line); len(words) > 0 && !p.runLine(ctx, o, words, &end) {
			break
		}
	}
	p.mu.Lock()
	p.interrupt = nil
	p.mu.Unlock()
	end.Artifacts = p.hasArtifacts()
	p.mu.Lock()
	p.ending = fmt.Appendf(nil, `{"type":"end","nonce":%q}`+"\n", o.Nonce)
	p.mu.Unlock()
	p.send(end)
	select {
	case <-p.in.done: // the process ended with the instance
	default:
		if o.Op == "program" {
			p.end(end.Code)
		}
	}
}

// runLine runs one line, and reports whether to continue.
func (p *process) runLine(ctx context.Context, o interpreter.Request, words []string, end *interpreter.Message) bool {
	args := words[1:]
	fail := func(name, text string) bool {
		if o.Op == "cell" {
			p.send(interpreter.Message{Type: "error", Name: name, Value: text, Traceback: name + ": " + text})
		} else {
			end.Code, end.Failure = 1, &interpreter.Failure{Name: name, Message: text}
		}
		return false
	}
	switch words[0] {
	case "set":
		p.vars[args[0]] = strings.Join(args[1:], " ")
	case "get":
		v, err := json.Marshal(p.vars[args[0]])
		if err == nil {
			p.send(interpreter.Message{Type: "result", Data: map[string]json.RawMessage{"text/plain": v}})
		}
	case "show":
		n, err := strconv.Atoi(args[0])
		if err == nil {
			v := json.RawMessage(strconv.Quote(strings.Repeat("x", n)))
			p.send(interpreter.Message{Type: "display", Data: map[string]json.RawMessage{"text/plain": v}})
		}
	case "return":
		end.Returned = json.RawMessage(strings.Join(args, " "))
	case "signal":
		_, _ = fmt.Sscan(strings.Join(args, " "), &end.Code, &end.Signal) // a test passes numbers
		return false
	case "raise":
		return fail(args[0], strings.Join(args[1:], " "))
	case "forge":
		p.forge(strings.Join(args, " "))
	case "flood":
		n, err := strconv.Atoi(args[0])
		for i := 0; err == nil && i < n; i++ {
			p.forge(strings.Join(args[1:], " "))
		}
	case "die":
		p.end(1)
		return false
	case "deaf":
		secs, err := time.ParseDuration(args[0] + "s")
		if err == nil {
			select {
			case <-time.After(secs):
			case <-p.gone:
			case <-p.in.done:
			}
		}
	default:
		env := map[string]string{}
		maps.Copy(env, p.user.Env)
		maps.Copy(env, o.Env)
		code, err := p.in.run(ctx, brig.Command{Argv: words, Env: env},
			brig.IO{Stdout: output{p, brig.FromStdout}, Stderr: output{p, brig.FromStderr}})
		if ctx.Err() != nil {
			return fail("KeyboardInterrupt", "")
		}
		if err != nil {
			return fail("NameError", err.Error())
		}
		if code != 0 || words[0] == "exit" {
			end.Code = code
			return false
		}
	}
	return true
}

// forge writes a line to the channel, as malicious code that has obtained the
// nonce could.
func (p *process) forge(line string) {
	p.put(part{brig.FromMessage, []byte(strings.ReplaceAll(line, "NONCE", p.nonce))})
}

func (p *process) hasArtifacts() bool {
	p.in.mu.Lock()
	defer p.in.mu.Unlock()
	return slices.ContainsFunc(slices.Collect(maps.Keys(p.in.files)), func(name string) bool {
		return path.Dir(name) == "/workspace/artifacts"
	})
}

type output struct {
	p    *process
	from brig.From
}

// Write implements io.Writer.
func (o output) Write(b []byte) (int, error) {
	o.p.put(part{o.from, bytes.Clone(b)})
	return len(b), nil
}

func (p *process) send(m interpreter.Message) {
	m.Nonce = p.nonce
	b, err := json.Marshal(m)
	if err != nil {
		b = fmt.Appendf(nil, `{"type":"error","name":"Error","value":%q}`, err)
	}
	p.put(part{brig.FromMessage, b})
}

// put sends a part, unless the process has ended.
func (p *process) put(m part) {
	select {
	case <-p.gone:
		return
	case <-p.in.done:
		return
	default:
	}
	select {
	case p.sent <- m:
	case <-p.gone:
	case <-p.in.done:
	}
}

// Keep implements brig.Instance.
func (in *instance) Keep(_ context.Context, p brig.Process, note []byte) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if plainly, ok := p.(*plainProcess); ok {
		if !in.spec.Pausable {
			return nil // the process ends with its server
		}
		if in.carried == nil {
			in.carried = map[string]brig.KeptProcess{}
		}
		if delete(in.carried, plainly.id); len(note) > 0 {
			in.carried[plainly.id] = brig.KeptProcess{ID: plainly.id, Note: bytes.Clone(note), Process: plainly}
		}
		return nil
	}
	fp, ok := p.(*listener)
	if !ok {
		return fmt.Errorf("keep: %T is not a process of this provider", p)
	}
	if in.kept == nil {
		in.kept = map[string]brig.KeptProcess{}
	}
	if delete(in.kept, fp.id); len(note) > 0 {
		in.kept[fp.id] = brig.KeptProcess{ID: fp.id, Note: bytes.Clone(note), Process: fp}
	}
	return nil
}

// KeptProcesses implements brig.Instance.
func (in *instance) KeptProcesses(context.Context) ([]brig.KeptProcess, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	var out []brig.KeptProcess
	for _, k := range in.kept {
		k.Process = &listener{process: k.Process.(*listener).process, closed: make(chan struct{})}
		out = append(out, k)
	}
	for _, k := range in.carried {
		k.Process = k.Process.(*plainProcess).attach()
		out = append(out, k)
	}
	return out, nil
}

// Bind implements brig.Instance.
func (in *instance) Bind(_ context.Context, spec brig.Spec, lease time.Time) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.exit != nil {
		return fmt.Errorf("bind %s: it has ended", in.id)
	}
	in.spec = spec
	in.lease.Reset(time.Until(lease))
	return nil
}

// Pause implements brig.Instance.
func (in *instance) Pause(context.Context) error { return nil }

// Resume implements brig.Instance.
func (in *instance) Resume(context.Context) error { return nil }
