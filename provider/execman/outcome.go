package execman

import (
	"cmp"
	"errors"
	"strings"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door/wire"
	"github.com/brig-run/brig/remote"
)

// verdict is what a result says of the service instead of the program.
func verdict(r *wire.ExecmanResult) error {
	if r.Status != wire.ExecmanRunner || deaf(r) {
		return nil
	}
	said := errors.New(brig.Clip(r.Detail+": "+r.Stderr, 500))
	switch {
	case r.ExitCode == wire.ExecmanBusy || r.Detail == wire.ExecmanNoneFree:
		return busy("the executor manager has no sandbox free").Because(said)
	case r.ExitCode == wire.ExecmanTooMany:
		return busy("the executor manager takes no more requests for now").Because(said)
	case r.Detail == wire.ExecmanUnsafe:
		e := brig.Errorf(brig.PolicyBlocked, "Code is unsafe. %s", brig.Clip(strings.TrimSpace(r.Stderr), 1000)).
			WithHint("leave that out; the executor manager's own configuration says what is screened")
		e.Field = "code"
		return e
	}
	// Whether it ran at all is not said.
	return brig.Errorf(brig.Unavailable, "the executor manager failed (%s)", brig.Clip(cmp.Or(r.Detail, "no reason given"), 100)).
		WithHint("see its log").Because(errors.Join(said, brig.ErrBegan))
}

// deaf reports whether a program did not end when its time was over, and the
// manager ended it: that is the program's fault, and not the manager's.
func deaf(r *wire.ExecmanResult) bool {
	return r.Status == wire.ExecmanRunner && r.ExitCode == wire.ExecmanInternalError && strings.TrimSpace(r.Stderr) == wire.ExecmanDeaf
}

// settle makes of a result what the caller gets.
func (p *Provider) settle(o *brig.Outcome, prog brig.Program, s source, sio brig.IO, r *wire.ExecmanResult) error {
	o.Duration = time.Since(o.Started)
	o.ExitCode = r.ExitCode
	switch r.Status {
	case wire.ExecmanRunner:
		remote.TimedOut(o, "the executor manager's own: "+o.Duration.Round(time.Millisecond).String())
	case wire.ExecmanSuccess:
		o.ExitCode, o.Value = 0, s.value(r.Result)
		o.Artifacts = artifacts(r.Artifacts)
	case wire.ExecmanResource:
		p.exceeded(o, r)
	case wire.ExecmanUnauthorized:
		o.ExitCode = failed(r.ExitCode)
		o.Error = &brig.ProgramError{
			Code: brig.PolicyBlocked.Code(), Name: string(brig.PolicyBlocked),
			Message:   "the executor manager allows no " + strings.ReplaceAll(cmp.Or(told(r.Unauthorized), "such access"), "_", " "),
			Traceback: brig.Clip(r.Stderr, 4000), Hint: "leave that out, or choose another provider",
		}
	default:
		o.ExitCode = failed(r.ExitCode)
		o.Error = remote.Exception(prog.Language, r.Stderr)
	}
	remote.Bound(o, prog)
	return remote.Finish(o, prog, sio, []byte(r.Stdout), []byte(r.Stderr))
}

// exceeded is the outcome of a program that ran into a limit.
func (p *Provider) exceeded(o *brig.Outcome, r *wire.ExecmanResult) {
	switch {
	case r.ExitCode == wire.ExecmanTimeout || told(r.Resource) == wire.ExecmanTime:
		remote.TimedOut(o, "the executor manager's own: "+o.Duration.Round(time.Millisecond).String())
	case r.ExitCode == wire.ExecmanOutOfMemory || told(r.Resource) == wire.ExecmanMemory:
		remote.OutOfMemory(o)
	default:
		o.ExitCode = failed(r.ExitCode)
		o.Error = &brig.ProgramError{Name: wire.ExecmanResource, Message: "the program exceeded a limit of the executor manager: " + cmp.Or(told(r.Resource), "it does not say which")}
	}
}

func told(s *string) string {
	if s == nil {
		return ""
	}
	return brig.Clip(*s, 40)
}

// failed is an exit code as a program has one.
func failed(code int) int {
	if code > 0 && code < 256 {
		return code
	}
	return 1
}

// artifacts are the files that came.
func artifacts(in []wire.ExecmanArtifact) (files []brig.File) {
	for _, a := range in {
		files = append(files, brig.File{Path: a.Name, Data: a.Content})
	}
	return files
}
