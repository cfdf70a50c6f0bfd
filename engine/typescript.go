package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/interpreter"
)

// TypeScript compiles TypeScript to JavaScript, and keeps line numbers. For an
// error in the source it returns an *interpreter.SyntaxError.
type TypeScript interface {
	Program(ctx context.Context, source string) (string, error)
	Cell(ctx context.Context, source string) (string, error)
}

// noTypeScript is the compiler that an engine uses if none is configured.
type noTypeScript struct{}

// Program implements TypeScript.
func (noTypeScript) Program(context.Context, string) (string, error) {
	return "", brig.Errorf(brig.Unimplemented, "this server has no TypeScript compiler").WithHint("use javascript")
}

// Cell implements TypeScript.
func (n noTypeScript) Cell(ctx context.Context, source string) (string, error) {
	return n.Program(ctx, source)
}

// compileProgram compiles a job's TypeScript to JavaScript. If there is a
// syntax error, it returns the outcome, and no sandbox is created.
func (i *interpreters) compileProgram(ctx context.Context, p brig.Program, j *job, sio brig.IO) (*brig.Outcome, error) {
	if j.lang == nil || j.lang.Name != brig.TypeScript {
		return nil, nil
	}
	js, err := i.Options.TypeScript.Program(ctx, j.request.Code)
	syntaxErr, bad := errors.AsType[*interpreter.SyntaxError](err)
	if !bad {
		j.request.Code = js
		return nil, err
	}
	o := &brig.Outcome{Sandbox: p.SandboxName, Error: &brig.ProgramError{
		Name: "SyntaxError", Message: syntaxErr.Message, Traceback: syntaxErr.Traceback("main.ts"),
	}}
	if o.Sandbox == "" {
		o.Sandbox = newName(j.lang.Prefix)
	}
	text := []byte(o.Error.Traceback + "\n")
	o.Result = brig.Result{ExecID: newExecID(), ExitCode: 1, Started: i.Now().UTC(), Done: true}
	o.Stderr = brig.Output{Head: text, Total: int64(len(text))}
	if sio.Stderr != nil {
		if _, err := sio.Stderr.Write(text); err != nil {
			return nil, fmt.Errorf("write output: %w", err)
		}
	}
	return o, nil
}

// compileCell compiles a TypeScript cell to JavaScript, or returns its syntax
// error.
func (i *interpreters) compileCell(ctx context.Context, language brig.Language, source string) (string, *brig.CodeError, error) {
	if language != brig.TypeScript {
		return source, nil, nil
	}
	js, err := i.Options.TypeScript.Cell(ctx, source)
	if syntaxErr, bad := errors.AsType[*interpreter.SyntaxError](err); bad {
		return "", &brig.CodeError{Name: "SyntaxError", Value: syntaxErr.Message, Traceback: syntaxErr.Traceback("cell.ts")}, nil
	}
	return js, nil, err
}
