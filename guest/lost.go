package guest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/brig-run/brig"
)

// LostTimeout is how long the host waits for a sandbox to end by itself after
// its agent has stopped answering. Then the host kills the sandbox.
const LostTimeout = 2 * time.Second

// WaitSelfEnd waits up to LostTimeout for a sandbox to end by itself after its
// agent was lost during an execution. It reports whether the sandbox ended.
func WaitSelfEnd(ctx context.Context, res *brig.Result, done <-chan struct{}) bool {
	wait := LostTimeout
	if res.TimedOut || ctx.Err() != nil {
		wait = 0 // the time limit has passed, so the process tree must end now
	}
	select {
	case <-done:
		return true
	case <-time.After(wait):
		return false
	}
}

// retryMain is the pause before AwaitMain calls ask again.
const retryMain = time.Second

// AwaitMain waits for the end of the main program of a sandbox that outlives it. The function ask
// waits for the program, and fails while the sandbox is unreachable. After a failure AwaitMain
// calls ask again, unless the sandbox has ended.
func (g *Guest) AwaitMain(ctx context.Context, ask func() error) error {
	for {
		err := ask()
		if err == nil {
			return nil
		}
		select {
		case <-g.Done:
			return fmt.Errorf("wait for the main program: %w", err)
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(retryMain):
		}
	}
}

// EndReason returns why a sandbox must end after the loss of its agent during
// an execution. It returns nil if the sandbox has ended by itself or the call
// never reached the agent. It also returns nil if the agent can be reached
// again and has ended the process tree. Silence ends only a sandbox without a
// working agent. A sandbox whose agent violates the protocol ends immediately,
// because the agent's responses cannot be trusted.
func (g *Guest) EndReason(ctx context.Context, id string, res *brig.Result, cause error) error {
	switch {
	case errors.Is(cause, ErrAgentGone), errors.Is(cause, ErrViolation):
		return cause
	case errors.Is(cause, ErrNotReached):
		return nil
	case WaitSelfEnd(ctx, res, g.Done):
		return nil
	}
	f := newTreeKill(ctx)
	defer f.stop()
	if u, ok := errors.AsType[pendingKillError](cause); ok {
		f.began.Store(u.began)
		f.alive.Store(u.alive)
	}
	return g.runTreeKill(f, id, true)
}

// BrokenConnectionError returns the error of an execution whose connection broke
// while the sandbox continues.
func BrokenConnectionError(cause error) error {
	if errors.Is(cause, ErrNotReached) {
		return brig.Errorf(brig.Unavailable, "the sandbox's agent could not be reached, and nothing was started").
			WithHint("try again in a moment").Because(cause)
	}
	return brig.Errorf(brig.Unavailable, "the connection to the sandbox's agent broke while the command ran, and its processes were ended").
		WithHint("check its effects before you run it again").Because(cause)
}

// SetLostResult sets the result of an execution whose agent was lost. If the
// sandbox has ended, it derives the result from the sandbox's exit. It returns
// false if the result is unknown.
func SetLostResult(ctx context.Context, res *brig.Result, exit *brig.Exit, cause error) (known bool, err error) {
	switch {
	case exit != nil && exit.OOMKilled:
		res.Done, res.OOMKilled, res.ExitCode, res.Signal = true, true, 137, "SIGKILL"
		res.TimedOut = false
		return true, nil
	case res.TimedOut:
		res.Done, res.ExitCode = true, 124
		return true, nil
	case ctx.Err() != nil:
		return true, context.Cause(ctx)
	case exit != nil:
		return true, brig.Errorf(brig.FailedPrecondition, "the sandbox ended while the command ran (%s)", exit.Reason).
			WithHint("see the sandbox's exit and logs").Because(cause)
	}
	return false, nil
}
