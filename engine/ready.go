package engine

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine/output"
)

// maxQuotedOutput limits how much output of a template's command is quoted in an error, in bytes.
const maxQuotedOutput = 300

// startTemplate prepares a new sandbox of a template. It attaches to the programs of a copy of the
// booted template, and runs the template's commands in any other sandbox.
func (ms *machines) startTemplate(ctx context.Context, m *machine, t *brig.Template) error {
	if m.booted != nil {
		return ms.boots.attach(ctx, m)
	}
	return ms.startTemplateCommands(ctx, m, t)
}

// startTemplateCommands starts the start command of a template in a new
// sandbox, and returns when the sandbox is ready. The sandbox is in the state
// Creating, so no other call can use it yet.
func (ms *machines) startTemplateCommands(ctx context.Context, m *machine, t *brig.Template) error {
	if t == nil {
		return nil
	}
	started, err := ms.startProgram(ctx, m, t)
	if err != nil {
		return err
	}
	if t.Ready != nil {
		ctx, cancel := context.WithTimeout(ctx, t.ReadyTimeout)
		defer cancel()
		if err := ms.awaitReady(ctx, m, t, started); err != nil {
			return err
		}
	}
	if t.Ready == nil {
		return nil
	}
	// The lease begins now.
	m.rec.Expires = ms.Now().UTC().Add(m.rec.Spec.TTL)
	return m.in.Extend(ctx, m.rec.Expires.Add(saveAllowance(m.rec.Spec)))
}

// startProgram starts the start command, if the template has one.
func (ms *machines) startProgram(ctx context.Context, m *machine, t *brig.Template) (*process, error) {
	start := t.Start
	if t.Entrypoint {
		argv, err := entrypoint(m.img, nil)
		if err != nil {
			return nil, brig.Errorf(brig.CreationFailed, "template %q: %s", t.Name, brig.AsError(err).Message).WithHint("give it a start command")
		}
		start = &brig.Command{Argv: argv}
		if m.rec.Spec.User == "" {
			start.User = m.img.Config.Account
		}
	}
	if start == nil {
		return nil, nil
	}
	p, err := ms.programs.startProcess(ctx, m.account, m.rec, m.in, brig.ProcessSpec{
		Command: applySandboxDefaults(m.rec.Spec, *start), NoInput: true, Tag: brig.StartTag,
	})
	if err != nil {
		if k := brig.AsError(err); k.Kind == brig.InvalidArgument {
			err = brig.Errorf(brig.CreationFailed, "template %q: its start command cannot be started: %s", t.Name, k.Message).Because(err)
		}
		return nil, err
	}
	return ms.programs.processesOf(m.rec.ID).find(p.PID, false)
}

// awaitReady runs the ready command until it exits with code 0, ctx is done, or
// the start command fails.
func (ms *machines) awaitReady(ctx context.Context, m *machine, t *brig.Template, started *process) error {
	cmd, err := ms.vault.withSecrets(ctx, m.rec, applySandboxDefaults(m.rec.Spec, *t.Ready))
	if err != nil {
		return err
	}
	failure := "it did not end"
	for {
		out := output.NewCapture(4 << 10)
		res, err := m.in.Exec(ctx, newExecID(), withDeadline(ctx, cmd), brig.IO{Stdout: out, Stderr: out})
		switch {
		case err == nil && res.ExitCode == 0:
			return nil
		case err == nil && !res.TimedOut:
			failure = fmt.Sprintf("it exits with %d%s", res.ExitCode, outputTail(out.Output()))
		case err != nil && brig.KindOf(err) == brig.InvalidArgument:
			return brig.Errorf(brig.CreationFailed, "template %q: its ready command cannot be started: %s", t.Name, brig.AsError(err).Message).Because(err)
		case err != nil && hasEnded(m.in):
			return brig.Errorf(brig.CreationFailed, "template %q: the sandbox ended before it was ready", t.Name).Because(err)
		case err != nil && ctx.Err() == nil:
			return err
		}
		if err := startFailure(t, started); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			if context.Cause(ctx) != context.DeadlineExceeded {
				return context.Cause(ctx)
			}
			return brig.Errorf(brig.CreationFailed, "template %q was not ready within %v: %s", t.Name, t.ReadyTimeout, failure).
				WithHint("look at its ready command, or raise its ready_timeout")
		case <-time.After(t.ReadyInterval):
		}
	}
}

// withDeadline returns c with a timeout that ends at ctx's deadline.
func withDeadline(ctx context.Context, c brig.Command) brig.Command {
	if end, ok := ctx.Deadline(); ok {
		c.Timeout = max(time.Until(end), time.Millisecond)
	}
	return c
}

// startFailure returns an error if the start command has exited with a nonzero
// code.
func startFailure(t *brig.Template, started *process) error {
	if started == nil {
		return nil
	}
	_, end, _ := started.outputBuffer.State()
	if end == nil || end.ExitCode == 0 {
		return nil
	}
	return brig.Errorf(brig.CreationFailed, "template %q: its start command exited with %d%s", t.Name, end.ExitCode, outputTail(started.outputBuffer.NewestOutput()))
}

// outputTail returns the end of a command's output, safe to print on a
// terminal.
func outputTail(o brig.Output) string {
	b := append(append([]byte{}, o.Head...), o.Tail...)
	if len(b) > maxQuotedOutput {
		b = b[len(b)-maxQuotedOutput:]
	}
	s := strings.TrimSpace(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(string(b), "?")))
	if s == "" {
		return ""
	}
	return ": " + s
}
