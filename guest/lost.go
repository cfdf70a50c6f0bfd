package guest

import (
	"context"
	"time"

	"github.com/brig-run/brig"
)

// LostTime is how long a machine whose agent does not answer has to turn out to
// have ended, before it is killed for it.
const LostTime = 2 * time.Second

// EndsItself waits as long as a machine whose agent was lost in the middle of an
// execution has to end by itself, and reports whether it did.
func EndsItself(ctx context.Context, res *brig.Result, done <-chan struct{}) bool {
	wait := LostTime
	if res.TimedOut || ctx.Err() != nil {
		wait = 0 // it has had its time: the process tree must go now
	}
	select {
	case <-done:
		return true
	case <-time.After(wait):
		return false
	}
}

// Verdict is what an execution came to whose agent was lost, by how its machine
// ended if it did. It reports false when that says nothing of it.
func Verdict(ctx context.Context, res *brig.Result, exit *brig.Exit, cause error) (known bool, err error) {
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
