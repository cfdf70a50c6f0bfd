package builder

import (
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

// startTag is the tag of the process of the start command.
const startTag = brig.StartTag

// finalize saves the files of the build, and then the start command's processes if there is one.
func (r *running) finalize(ctx context.Context) error {
	x := r.build
	x.Env, x.User, x.Dir = r.state.env, r.state.user.run, r.state.dir
	if x.Start == "" && x.Ready != "" {
		if err := r.awaitReady(ctx, r.box, x.Ready); err != nil {
			return err
		}
	}
	if _, err := r.Service.Pause(ctx, r.box, brig.PauseOptions{FilesOnly: true}); err != nil {
		return err
	}
	x.Files, x.Sandbox, r.box = brig.ID(r.box), brig.ID(r.box), ""
	if x.Start == "" {
		return nil
	}
	copies, err := r.Service.Fork(ctx, string(x.Files), withDefaults(x, brig.ForkSpec{TTL: min(buildTimeout, r.LimitRange.MaxTTL)}))
	if err != nil {
		return err
	}
	started := string(copies[0].ID)
	if err := r.startIn(ctx, started); err != nil {
		r.removeSandbox(ctx, started)
		return err
	}
	x.Sandbox = copies[0].ID
	return nil
}

// startIn runs the start command in a sandbox until the template is ready, and then saves the sandbox
// with its memory.
func (r *running) startIn(ctx context.Context, box string) error {
	x := r.build
	r.log.add("info", r.step, "START "+brig.Clip(x.Start, 1000))
	processes := r.Service.Processes(box)
	p, err := processes.Start(ctx, brig.ProcessSpec{
		Command: brig.Command{Argv: login(x.Start), Env: x.Env, Dir: x.Dir, User: x.User}, NoInput: true, Tag: startTag,
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
	ready := x.Ready
	if ready == "" {
		ready = defaultReady
	}
	if err := r.awaitReady(watched, box, ready); err != nil {
		return err
	}
	stopWatching(nil) // an attached call would prevent the pause
	_, err = r.Service.Pause(ctx, box, brig.PauseOptions{})
	return err
}

// watchStart adds the output of the start command to the log until ctx ends. It returns an error if
// the command fails.
func (r *running) watchStart(ctx context.Context, processes brig.Processes, pid int) error {
	out := &lineWriter{log: r.log, level: "info", step: r.step}
	var end *brig.Result
	err := processes.Attach(ctx, pid, 0, func(e brig.ProcessEvent) error {
		_, _ = out.Write(e.Output) // never fails
		if e.End != nil {
			end = e.End
		}
		return nil
	})
	last := out.flush()
	if ctx.Err() != nil {
		return nil
	}
	if end != nil {
		return resultError(r.build.Start, end, last)
	}
	return err
}

// awaitReady runs the ready command until it succeeds, or until ctx ends.
func (r *running) awaitReady(ctx context.Context, box, command string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, failf("the ready command did not succeed within %v", readyTimeout))
	defer cancel()
	r.log.add("info", r.step, "READY "+brig.Clip(command, 1000))
	x := r.build
	run := brig.Command{Argv: login(command), Env: x.Env, Dir: x.Dir, User: x.User, Timeout: min(readyTimeout, r.LimitRange.MaxTimeout)}
	for {
		res, err := r.Service.Exec(ctx, box, run, brig.IO{})
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return err
		}
		if res.ExitCode == 0 {
			return nil
		}
		select {
		case <-time.After(readyInterval):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
