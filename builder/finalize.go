package builder

import (
	"cmp"
	"context"
	"time"

	"github.com/brig-run/brig"
)

// Times of the start and the ready command, as in E2B.
const (
	readyInterval = 2 * time.Second
	readyTimeout  = 10 * time.Minute
	defaultReady  = "sleep 20" // of a template with a start command
)

// finalize saves the files of the build, and then the start command's processes if there is one.
func (r *activeRun) finalize(ctx context.Context) error {
	x := r.build
	x.Env, x.User, x.Dir = r.state.env, r.state.user.run, r.state.dir
	if x.Start == "" && x.Ready != "" {
		if err := r.awaitReady(ctx, string(x.Files), x.Ready); err != nil {
			return err
		}
	}
	if _, err := r.b.options.Service.Pause(ctx, string(x.Files), brig.PauseOptions{FilesOnly: true}); err != nil {
		return err
	}
	if x.Start == "" {
		return nil
	}
	// The pause has freed the place of the build in the tenant's quota, and another creation may have taken it.
	err := r.awaitQuota(ctx, func() error {
		copies, err := r.b.options.Service.Fork(ctx, string(x.Files), withDefaults(x, brig.ForkSpec{TTL: r.timeout(), AtEnd: &brig.AtEnd{Pause: true}}))
		if err == nil {
			x.Sandbox = copies[0].ID
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := r.record(ctx); err != nil {
		return err
	}
	return r.startIn(ctx, string(x.Sandbox))
}

// startIn runs the start command in a sandbox until the template is ready, and then saves the sandbox
// with its memory.
func (r *activeRun) startIn(ctx context.Context, box string) error {
	x := r.build
	r.log.add("info", r.step, "START "+brig.Clip(x.Start, 1000))
	processes := r.b.options.Service.Processes(box)
	var p *brig.ProcessInfo
	err := r.awaitQuota(ctx, func() (err error) {
		p, err = processes.Start(ctx, brig.ProcessSpec{
			Command: brig.Command{Argv: login(x.Start), Env: x.Env, Dir: x.Dir, User: x.User}, NoInput: true, Tag: brig.StartTag,
		})
		return err
	})
	if err != nil {
		return err
	}
	watched, stopWatching := context.WithCancelCause(ctx)
	defer stopWatching(nil)
	go func() {
		if err := r.watchStart(watched, processes, p.PID); err != nil {
			stopWatching(err)
		}
	}()
	if err := r.awaitReady(watched, box, cmp.Or(x.Ready, defaultReady)); err != nil {
		return err
	}
	stopWatching(nil) // the pause would end the attached call
	_, err = r.b.options.Service.Pause(ctx, box, brig.PauseOptions{})
	return err
}

// watchStart adds the output of the start command to the log until ctx ends. It returns an error if
// the command fails.
func (r *activeRun) watchStart(ctx context.Context, processes brig.Processes, pid int) error {
	last := &lastLines{}
	out := &lineWriter{log: r.log, level: "info", step: r.step, last: last}
	var end *brig.Result
	err := processes.Attach(ctx, pid, 0, func(e brig.ProcessEvent) error {
		_, _ = out.Write(e.Output) // never fails
		if e.End != nil {
			end = e.End
		}
		return nil
	})
	out.flush()
	if ctx.Err() != nil { // the template is ready, or the build has ended
		return nil //nolint:nilerr // err only says that
	}
	if end != nil {
		return resultError(brig.Clip(r.build.Start, 200), end, last.text())
	}
	return err
}

// awaitReady runs the ready command until it succeeds, or until ctx ends.
func (r *activeRun) awaitReady(ctx context.Context, box, command string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, failf("the ready command did not succeed within %v", readyTimeout))
	defer cancel()
	r.log.add("info", r.step, "READY "+brig.Clip(command, 1000))
	x := r.build
	run := brig.Command{Argv: login(command), Env: x.Env, Dir: x.Dir, User: x.User, Timeout: min(readyTimeout, r.bounds.MaxTimeout)}
	for {
		res, err := r.b.options.Service.Exec(ctx, box, run, brig.IO{})
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err == nil && res.ExitCode == 0 {
			return nil
		}
		if err != nil && !isFull(err) {
			return err
		}
		select {
		case <-time.After(readyInterval):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
