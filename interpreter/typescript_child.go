package interpreter

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime/debug"
	"sync"
	"time"
)

// Limits of a process that turns TypeScript into JavaScript.
const (
	transpileTime  = 5 * time.Second // for one program, unless it is said
	transpileStack = 512 << 20       // bytes: more is a program to refuse
	transpileIdle  = 2               // how many wait for work
	transpileMost  = 4               // how many work at once
)

// A Transpiler turns TypeScript into JavaScript in processes of its own, for
// the compiler may take for ever, or overflow its stack, and no code of ours
// could stop it then. A process that did its work waits for more.
type Transpiler struct {
	// Binary is a program that, started as Argv, is [TypeScriptMain] on its
	// standard input and output.
	Binary string
	Argv   []string
	// Patience is how long one program may take, 5 s if it is 0.
	Patience time.Duration

	once sync.Once
	busy chan struct{}       // as many as work
	idle chan *transpileWork // who waits
}

type transpileOrder struct {
	Code string `json:"code"`
	Cell bool   `json:"cell,omitempty"`
}

type transpileAnswer struct {
	JavaScript string       `json:"js,omitempty"`
	Error      *SyntaxError `json:"error,omitempty"`
}

type transpileWork struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

// TypeScriptMain answers programs of TypeScript with JavaScript until there
// are no more. It is the main of a process of a [Transpiler].
func TypeScriptMain(r io.Reader, w io.Writer) error {
	debug.SetMaxStack(transpileStack)
	orders, answers := json.NewDecoder(r), json.NewEncoder(w)
	for {
		var o transpileOrder
		if err := orders.Decode(&o); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read TypeScript: %w", err)
		}
		var a transpileAnswer
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

// Program is [TypeScript].
func (t *Transpiler) Program(ctx context.Context, code string) (js string, err error) {
	return t.run(ctx, transpileOrder{Code: code})
}

// Cell is [TypeScriptCell].
func (t *Transpiler) Cell(ctx context.Context, code string) (js string, err error) {
	return t.run(ctx, transpileOrder{Code: code, Cell: true})
}

// Close ends the processes that wait. Those that work end when they are done.
func (t *Transpiler) Close() {
	t.prepare()
	for {
		select {
		case w := <-t.idle:
			w.end()
		default:
			return
		}
	}
}

func (t *Transpiler) prepare() {
	t.once.Do(func() {
		t.busy, t.idle = make(chan struct{}, transpileMost), make(chan *transpileWork, transpileIdle)
	})
}

func (t *Transpiler) run(ctx context.Context, o transpileOrder) (js string, err error) {
	if len(o.Code) > maxTypeScript {
		return TypeScript(o.Code) // which says so
	}
	t.prepare()
	select {
	case t.busy <- struct{}{}:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	defer func() { <-t.busy }()
	w, err := t.take()
	if err != nil {
		return "", fmt.Errorf("start the TypeScript compiler: %w", err)
	}
	clock, stop := context.WithTimeout(ctx, cmp.Or(t.Patience, transpileTime))
	defer stop()
	kept := context.AfterFunc(clock, func() { _ = w.cmd.Process.Kill() })
	var a transpileAnswer
	err = json.NewEncoder(w.in).Encode(o)
	if err == nil {
		err = w.out.Decode(&a)
	}
	if !kept() || err != nil {
		w.end()
	} else {
		t.give(w)
	}
	switch {
	case err == nil && a.Error != nil:
		return "", a.Error
	case err == nil:
		return a.JavaScript, nil
	case ctx.Err() != nil:
		return "", ctx.Err()
	default:
		// It ran out of time, or of its stack: the program is to blame.
		return "", &SyntaxError{Message: "the TypeScript is too deeply nested to be compiled"}
	}
}

// take returns a process that waits, or a new one.
func (t *Transpiler) take() (*transpileWork, error) {
	select {
	case w := <-t.idle:
		return w, nil
	default:
	}
	w := &transpileWork{cmd: &exec.Cmd{Path: t.Binary, Args: t.Argv}}
	w.cmd.Env, w.cmd.Dir, w.cmd.SysProcAttr = []string{}, "/", confined()
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

// give lets a process wait for more work, if not enough do.
func (t *Transpiler) give(w *transpileWork) {
	select {
	case t.idle <- w:
	default:
		w.end()
	}
}

func (w *transpileWork) end() {
	w.in.Close()
	_ = w.cmd.Process.Kill() // it may have ended
	_ = w.cmd.Wait()
}
