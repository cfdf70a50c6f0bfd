package engine

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/brig-run/brig"
)

// maxSaid bounds what an error tells of what a command of a template printed.
const maxSaid = 300

// prepare starts what a template starts in its sandboxes, and returns when it is
// ready. The machine is on record as being created, and nobody else's yet.
func (e *Engine) prepare(ctx context.Context, m *machine, t *brig.Template) error {
	if t == nil {
		return nil
	}
	started, err := e.startTemplate(ctx, m, t)
	if err != nil {
		return err
	}
	if t.Ready != nil {
		ctx, cancel := context.WithTimeout(ctx, t.ReadyTimeout)
		defer cancel()
		if err := e.awaitReady(ctx, m, t, started); err != nil {
			return err
		}
	}
	if t.Ready == nil {
		return nil
	}
	// Its lease begins now.
	m.rec.Expires = e.Now().UTC().Add(m.rec.Spec.TTL)
	return m.in.Extend(ctx, m.rec.Expires.Add(spare(m.rec.Spec)))
}

// startTemplate starts the start command, if there is one.
func (e *Engine) startTemplate(ctx context.Context, m *machine, t *brig.Template) (*process, error) {
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
	p, err := e.startProcess(ctx, m.rec, m.in, brig.ProcessSpec{
		Command: inSandbox(m.rec.Spec, *start), NoInput: true, Tag: brig.StartTag,
	})
	if err != nil {
		if k := brig.AsError(err); k.Kind == brig.InvalidArgument {
			err = brig.Errorf(brig.CreationFailed, "template %q: its start command cannot be started: %s", t.Name, k.Message).Because(err)
		}
		return nil, err
	}
	return e.processesOf(m.rec.ID).find(p.PID, false)
}

// awaitReady runs the ready command until it exits with 0, or ctx ends, or what
// was started has failed.
func (e *Engine) awaitReady(ctx context.Context, m *machine, t *brig.Template, started *process) error {
	cmd, err := e.withSecrets(ctx, m.rec, inSandbox(m.rec.Spec, *t.Ready))
	if err != nil {
		return err
	}
	said := "it did not end"
	for {
		out := newCapture(4 << 10)
		res, err := m.in.Exec(ctx, newExecID(), withinTime(ctx, cmd), brig.IO{Stdout: out, Stderr: out})
		switch {
		case err == nil && res.ExitCode == 0:
			return nil
		case err == nil && !res.TimedOut:
			said = fmt.Sprintf("it exits with %d%s", res.ExitCode, printed(out.output()))
		case err != nil && brig.KindOf(err) == brig.InvalidArgument:
			return brig.Errorf(brig.CreationFailed, "template %q: its ready command cannot be started: %s", t.Name, brig.AsError(err).Message).Because(err)
		case err != nil && gone(m.in):
			return brig.Errorf(brig.CreationFailed, "template %q: the sandbox ended before it was ready", t.Name).Because(err)
		case err != nil && ctx.Err() == nil:
			return err
		}
		if err := failed(t, started); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			if context.Cause(ctx) != context.DeadlineExceeded {
				return context.Cause(ctx)
			}
			return brig.Errorf(brig.CreationFailed, "template %q was not ready within %v: %s", t.Name, t.ReadyTimeout, said).
				WithHint("look at its ready command, or raise its ready_timeout")
		case <-time.After(t.ReadyInterval):
		}
	}
}

// withinTime returns a command that ends when ctx does.
func withinTime(ctx context.Context, c brig.Command) brig.Command {
	if end, ok := ctx.Deadline(); ok {
		c.Timeout = max(time.Until(end), time.Millisecond)
	}
	return c
}

// failed says how what was started has ended, unless it was well.
func failed(t *brig.Template, started *process) error {
	if started == nil {
		return nil
	}
	_, end, _ := started.tape.state()
	if end == nil || end.ExitCode == 0 {
		return nil
	}
	return brig.Errorf(brig.CreationFailed, "template %q: its start command exited with %d%s", t.Name, end.ExitCode, printed(started.tape.last()))
}

// printed is the end of what a command said, fit for a terminal.
func printed(o brig.Output) string {
	b := append(append([]byte{}, o.Head...), o.Tail...)
	if len(b) > maxSaid {
		b = b[len(b)-maxSaid:]
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
