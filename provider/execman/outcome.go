package execman

import (
	"cmp"
	"errors"
	"strings"
	"time"

	"github.com/brig-run/brig"
	v1 "github.com/brig-run/brig/api/v1"
	"github.com/brig-run/brig/remote"
)

// resultError returns an error if the result reports a failure of the service
// and not of the program.
func resultError(r *v1.ExecmanResult) error {
	if r.Status != v1.ExecmanRunner || hasIgnoredTimeout(r) {
		return nil
	}
	cause := errors.New(brig.Clip(r.Detail+": "+r.Stderr, 500))
	switch {
	case r.ExitCode == v1.ExecmanBusy || r.Detail == v1.ExecmanNoneFree:
		return busyError("the executor manager has no sandbox free").Because(cause)
	case r.ExitCode == v1.ExecmanTooMany:
		return busyError("the executor manager takes no more requests for now").Because(cause)
	case r.Detail == v1.ExecmanUnsafe:
		e := brig.Errorf(brig.PolicyBlocked, "Code is unsafe. %s", brig.Clip(strings.TrimSpace(r.Stderr), 1000)).
			WithHint("omit it; the executor manager's own configuration defines the screening")
		e.Field = "code"
		return e
	}
	// It is unknown whether the program ran.
	return brig.WithRetry(brig.Errorf(brig.Unavailable, "the executor manager failed (%s)", brig.Clip(cmp.Or(r.Detail, "no reason given"), 100)).
		WithHint("see its log").Because(cause), brig.RetryContained)
}

// hasIgnoredTimeout reports whether the manager had to kill a program that did
// not end at its timeout. This is a failure of the program, not of the
// manager.
func hasIgnoredTimeout(r *v1.ExecmanResult) bool {
	return r.Status == v1.ExecmanRunner && r.ExitCode == v1.ExecmanInternalError && strings.TrimSpace(r.Stderr) == v1.ExecmanTimeoutStderr
}

// fillOutcome fills in the caller's outcome from a result.
func (p *Provider) fillOutcome(o *brig.Outcome, prog brig.Program, s source, sio brig.IO, r *v1.ExecmanResult) error {
	o.Duration = time.Since(o.Started)
	o.ExitCode = r.ExitCode
	switch r.Status {
	case v1.ExecmanRunner:
		remote.SetTimedOut(o, "the executor manager's own: "+o.Duration.Round(time.Millisecond).String())
	case v1.ExecmanSuccess:
		o.ExitCode, o.Value = 0, s.value(r.Result)
		o.Artifacts = artifacts(r.Artifacts)
	case v1.ExecmanResource:
		p.settleExceeded(o, r)
	case v1.ExecmanUnauthorized:
		o.ExitCode = failedExitCode(r.ExitCode)
		o.Error = &brig.ProgramError{
			Code: brig.PolicyBlocked.Code(), Name: string(brig.PolicyBlocked),
			Message:   "the executor manager allows no " + strings.ReplaceAll(cmp.Or(clipOptional(r.Unauthorized), "such access"), "_", " "),
			Traceback: brig.Clip(r.Stderr, 4000), Hint: "omit it, or choose another provider",
		}
	default:
		o.ExitCode = failedExitCode(r.ExitCode)
		o.Error = remote.ParseException(prog.Language, r.Stderr)
	}
	remote.LimitOutcome(o, prog)
	return remote.Finish(o, prog, sio, []byte(r.Stdout), []byte(r.Stderr))
}

// settleExceeded fills in the outcome of a program that exceeded a limit.
func (p *Provider) settleExceeded(o *brig.Outcome, r *v1.ExecmanResult) {
	switch {
	case r.ExitCode == v1.ExecmanTimeout || clipOptional(r.Resource) == v1.ExecmanTime:
		remote.SetTimedOut(o, "the executor manager's own: "+o.Duration.Round(time.Millisecond).String())
	case r.ExitCode == v1.ExecmanOutOfMemory || clipOptional(r.Resource) == v1.ExecmanMemory:
		remote.SetOutOfMemory(o)
	default:
		o.ExitCode = failedExitCode(r.ExitCode)
		o.Error = &brig.ProgramError{Name: v1.ExecmanResource, Message: "the program exceeded a limit of the executor manager: " + cmp.Or(clipOptional(r.Resource), "it does not say which")}
	}
}

func clipOptional(s *string) string {
	if s == nil {
		return ""
	}
	return brig.Clip(*s, 40)
}

// failedExitCode maps an exit code to the valid range for a failed program.
func failedExitCode(code int) int {
	if code > 0 && code < 256 {
		return code
	}
	return 1
}

// artifacts decodes the files of a result.
func artifacts(in []v1.ExecmanArtifact) (files []brig.File) {
	for _, a := range in {
		files = append(files, brig.File{Path: a.Name, Data: a.Content})
	}
	return files
}
