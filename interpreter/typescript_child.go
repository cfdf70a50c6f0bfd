package interpreter

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Limits of a process that compiles TypeScript to JavaScript.
const (
	transpileTimeout = 5 * time.Second // for one program, by default
	transpileStack   = 512 << 20       // bytes: a program that needs more is refused
	transpileIdle    = 2               // maximum number of idle processes
	transpileMax     = 4               // maximum number of concurrent programs
)

// Transpiler compiles TypeScript to JavaScript in separate processes. The compiler may run
// forever or overflow its stack, and the server could not stop it in its own process. Idle
// processes are reused.
type Transpiler struct {
	// Binary is the path of a program that runs [TypeScriptMain] on its standard input and output
	// when it is started with the arguments Argv.
	Binary string
	Argv   []string
	// Timeout is the time limit for one program. Zero means 5 seconds.
	Timeout time.Duration

	once  sync.Once
	slots chan struct{}         // one entry per concurrent program
	idle  chan *transpileWorker // idle processes

	mu     sync.Mutex // guards closed, and is held while a process becomes idle
	closed bool
}

type transpileRequest struct {
	Code string `json:"code"`
	Cell bool   `json:"cell,omitempty"`
}

type transpileResponse struct {
	JavaScript string       `json:"js,omitempty"`
	Error      *SyntaxError `json:"error,omitempty"`
}

type transpileWorker struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

// TypeScriptMain compiles TypeScript programs to JavaScript until its input ends. It is the main
// function of a Transpiler's processes.
func TypeScriptMain(r io.Reader, w io.Writer) error {
	debug.SetMaxStack(transpileStack)
	requests, answers := json.NewDecoder(r), json.NewEncoder(w)
	for {
		var o transpileRequest
		if err := requests.Decode(&o); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read TypeScript: %w", err)
		}
		var a transpileResponse
		var err error
		if o.Cell {
			a.JavaScript, err = TypeScriptCell(o.Code)
		} else {
			a.JavaScript, err = TypeScript(o.Code)
		}
		if err != nil && !errors.As(err, &a.Error) {
			a.Error = &SyntaxError{Message: err.Error()}
		}
		if err := answers.Encode(a); err != nil {
			return fmt.Errorf("answer with JavaScript: %w", err)
		}
	}
}

// Program compiles a program as [TypeScript] does, in a separate process.
func (t *Transpiler) Program(ctx context.Context, code string) (js string, err error) {
	return t.run(ctx, transpileRequest{Code: code})
}

// Cell compiles a cell as [TypeScriptCell] does, in a separate process.
func (t *Transpiler) Cell(ctx context.Context, code string) (js string, err error) {
	return t.run(ctx, transpileRequest{Code: code, Cell: true})
}

// Close ends the idle processes. The others end after their current program.
func (t *Transpiler) Close() {
	t.startSpare()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	for {
		select {
		case w := <-t.idle:
			w.end()
		default:
			return
		}
	}
}

func (t *Transpiler) startSpare() {
	t.once.Do(func() {
		t.slots, t.idle = make(chan struct{}, transpileMax), make(chan *transpileWorker, transpileIdle)
	})
}

func (t *Transpiler) run(ctx context.Context, o transpileRequest) (js string, err error) {
	if len(o.Code) > maxTypeScript {
		return TypeScript(o.Code) // it returns the error
	}
	t.startSpare()
	select {
	case t.slots <- struct{}{}:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	defer func() { <-t.slots }()
	w, err := t.take()
	if err != nil {
		return "", fmt.Errorf("start the TypeScript compiler: %w", err)
	}
	timeoutCtx, stop := context.WithTimeout(ctx, cmp.Or(t.Timeout, transpileTimeout))
	defer stop()
	stopKill := context.AfterFunc(timeoutCtx, func() { _ = w.cmd.Process.Kill() })
	var a transpileResponse
	err = json.NewEncoder(w.in).Encode(o)
	if err == nil {
		err = w.out.Decode(&a)
	}
	if !stopKill() || err != nil {
		w.end()
	} else {
		t.putIdle(w)
	}
	switch {
	case err == nil && a.Error != nil:
		return "", a.Error
	case err == nil:
		return a.JavaScript, nil
	case ctx.Err() != nil:
		return "", ctx.Err()
	default:
		// The program made the process exceed its time limit or overflow its stack.
		return "", &SyntaxError{Message: "the TypeScript is too deeply nested to be compiled"}
	}
}

// take returns an idle process, or a new one.
func (t *Transpiler) take() (*transpileWorker, error) {
	select {
	case w := <-t.idle:
		return w, nil
	default:
	}
	w := &transpileWorker{cmd: &exec.Cmd{Path: t.Binary, Args: t.Argv}}
	w.cmd.Env, w.cmd.Dir, w.cmd.SysProcAttr = []string{}, "/", unprivilegedAttr()
	in, err := w.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	w.in, w.out = in, json.NewDecoder(out)
	return w, w.cmd.Start()
}

// putIdle keeps a process for reuse. It ends the process if enough processes are idle, or if t is
// closed.
func (t *Transpiler) putIdle(w *transpileWorker) {
	t.mu.Lock()
	kept := false
	if !t.closed {
		select {
		case t.idle <- w:
			kept = true
		default:
		}
	}
	t.mu.Unlock()
	if !kept {
		w.end()
	}
}

func (w *transpileWorker) end() {
	w.in.Close()
	_ = w.cmd.Process.Kill() // it may have ended already
	_ = w.cmd.Wait()
}

// Limits of a compiler process, whose input is untrusted.
const (
	transpileMemory = 1 << 30 // bytes
	nobodyID        = 65534
)

// unprivilegedAttr returns the attributes of an unprivileged process. If the server is root, the
// process runs as the user nobody without network access. It exits when its input ends, at the
// latest when the server exits.
func unprivilegedAttr() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true}
	if os.Geteuid() == 0 {
		attr.Credential = &syscall.Credential{Uid: nobodyID, Gid: nobodyID, Groups: []uint32{}}
		attr.Cloneflags = unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWNS | unix.CLONE_NEWPID
	}
	return attr
}

// Confine permanently limits the resources of the calling process. It must be called before
// TypeScriptMain.
func Confine() error {
	for resource, n := range map[int]uint64{
		unix.RLIMIT_DATA: transpileMemory, unix.RLIMIT_FSIZE: 0, unix.RLIMIT_CORE: 0, unix.RLIMIT_NOFILE: 64,
	} {
		if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: n, Max: n}); err != nil {
			return os.NewSyscallError("setrlimit", err)
		}
	}
	return nil
}
