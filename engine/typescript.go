package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/interpreter"
)

// TypeScript turns TypeScript into JavaScript on the same lines. What is wrong
// with the source is an *interpreter.SyntaxError.
type TypeScript interface {
	Program(ctx context.Context, source string) (string, error)
	Cell(ctx context.Context, source string) (string, error)
}

// noTypeScript is the compiler of an engine that was given none.
type noTypeScript struct{}

// Program implements TypeScript.
func (noTypeScript) Program(context.Context, string) (string, error) {
	return "", brig.Errorf(brig.Unimplemented, "this server has no TypeScript compiler").WithHint("use javascript")
}

// Cell implements TypeScript.
func (n noTypeScript) Cell(ctx context.Context, source string) (string, error) {
	return n.Program(ctx, source)
}

// compileProgram makes JavaScript of a job's TypeScript. What is wrong with
// the source is the outcome, without a sandbox.
func (e *Engine) compileProgram(ctx context.Context, p brig.Program, j *job, sio brig.IO) (*brig.Outcome, error) {
	if j.lang == nil || j.lang.Name != brig.TypeScript {
		return nil, nil
	}
	js, err := e.Options.TypeScript.Program(ctx, j.order.Code)
	wrong, bad := errors.AsType[*interpreter.SyntaxError](err)
	if !bad {
		j.order.Code = js
		return nil, err
	}
	o := &brig.Outcome{Sandbox: p.Name, Error: &brig.ProgramError{
		Name: "SyntaxError", Message: wrong.Message, Traceback: wrong.Traceback("main.ts"),
	}}
	if o.Sandbox == "" {
		o.Sandbox = newName(j.lang.Prefix)
	}
	said := []byte(o.Error.Traceback + "\n")
	o.Result = brig.Result{ExecID: newExecID(), ExitCode: 1, Started: e.Now().UTC(), Done: true}
	o.Stderr = brig.Output{Head: said, Total: int64(len(said))}
	if sio.Stderr != nil {
		if _, err := sio.Stderr.Write(said); err != nil {
			return nil, fmt.Errorf("write output: %w", err)
		}
	}
	return o, nil
}

// compileCell makes JavaScript of a cell of TypeScript, or says what is wrong
// with it.
func (e *Engine) compileCell(ctx context.Context, language brig.Language, source string) (string, *brig.CodeError, error) {
	if language != brig.TypeScript {
		return source, nil, nil
	}
	js, err := e.Options.TypeScript.Cell(ctx, source)
	if wrong, bad := errors.AsType[*interpreter.SyntaxError](err); bad {
		return "", &brig.CodeError{Name: "SyntaxError", Value: wrong.Message, Traceback: wrong.Traceback("cell.ts")}, nil
	}
	return js, nil, err
}
