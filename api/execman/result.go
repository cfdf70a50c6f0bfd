package execman

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door/wire"
)

// maxArtifacts is how many files come out here.
const maxArtifacts = 10

// noValue is what Node.js programs are told whose main returns nothing.
const noValue = "main must return a value. Use null for an empty result."

// result says how a program ended. Of one that failed the output is not told.
func result(language brig.Language, o *brig.Outcome) *wire.ExecmanResult {
	r := blank()
	r.TimeUsedMS = o.Duration.Milliseconds()
	r.Stdout, r.Stderr, r.ExitCode = text(o.Stdout), text(o.Stderr), o.ExitCode
	exceeded := func(resource string, code int, stderr string) *wire.ExecmanResult {
		r.Status, r.Resource, r.ExitCode, r.Stdout, r.Stderr = wire.ExecmanResource, &resource, code, "", stderr
		return r
	}
	switch {
	case o.TimedOut && o.Signal != "":
		// It did not end when it was asked to.
		return refused(wire.ExecmanInternalError, wire.ExecmanInternal, wire.ExecmanDeaf)
	case o.TimedOut:
		return exceeded(wire.ExecmanTime, wire.ExecmanTimeout, "Execution timeout")
	case o.OOMKilled:
		return exceeded(wire.ExecmanMemory, wire.ExecmanOutOfMemory, "Memory limit exceeded (killed by OOM)")
	case o.ExitCode == 0 && o.Error == nil && language == brig.JavaScript && o.Value == nil:
		r.Stderr += noValue + "\n"
		fallthrough
	case o.ExitCode != 0 || o.Error != nil:
		return failed(r, o)
	}
	r.Status, r.Artifacts = wire.ExecmanSuccess, artifacts(o.Artifacts)
	if o.Value != nil {
		r.Result.Present, r.Result.Value = true, o.Value
	}
	return r
}

// failed tells by what a program wrote what it was that it could not do.
func failed(r *wire.ExecmanResult, o *brig.Outcome) *wire.ExecmanResult {
	r.Stdout, r.ExitCode = "", cmp.Or(r.ExitCode, 1)
	if r.Stderr == "" && o.Error != nil {
		r.Stderr = o.Error.Name + ": " + o.Error.Message + "\n"
	}
	file, syscall, memory, nonzero := wire.ExecmanFile, wire.ExecmanSyscall, wire.ExecmanMemory, wire.ExecmanNonzero
	switch {
	case strings.Contains(r.Stderr, "Permission denied"):
		r.Status, r.Unauthorized = wire.ExecmanUnauthorized, &file
	case strings.Contains(r.Stderr, "Operation not permitted"):
		r.Status, r.Unauthorized = wire.ExecmanUnauthorized, &syscall
	case strings.Contains(r.Stderr, "MemoryError"):
		r.Status, r.Resource = wire.ExecmanResource, &memory
	default:
		r.Status, r.Runtime = wire.ExecmanProgramError, &nonzero
	}
	return r
}

// failure says why a program did not run; nil when nobody wants to know.
func failure(err error) *wire.ExecmanResult {
	told := brig.AsError(err)
	switch told.Kind {
	case brig.Canceled:
		return nil
	case brig.PolicyBlocked:
		lines := strings.TrimPrefix(told.Message, wire.ExecmanUnsafe+". ")
		return refused(wire.ExecmanRefused, wire.ExecmanUnsafe, strings.ReplaceAll(lines, "; Line ", "\nLine "))
	case brig.RateLimited:
		const message = "Too many requests, please try again later"
		return refused(wire.ExecmanTooMany, message, message)
	case brig.Unavailable, brig.CreationFailed, brig.NotInitialized, brig.ConnectionFailed:
		return busy()
	case brig.Timeout:
		return refused(wire.ExecmanInternalError, wire.ExecmanInternal, told.Message)
	}
	return refused(wire.ExecmanRefused, wire.ExecmanUnforeseen, told.Message)
}

func busy() *wire.ExecmanResult {
	return refused(wire.ExecmanBusy, wire.ExecmanNoneFree, "Container pool is busy")
}

func refused(code int, detail, stderr string) *wire.ExecmanResult {
	r := blank()
	r.Status, r.ExitCode, r.Detail, r.Stderr = wire.ExecmanRunner, code, detail, stderr
	return r
}

func blank() *wire.ExecmanResult {
	return &wire.ExecmanResult{Artifacts: []wire.ExecmanArtifact{}, Result: wire.ExecmanValue{Type: "json"}}
}

// text is what was kept of a stream, and where something is missing.
func text(o brig.Output) string {
	head, tail := strings.ToValidUTF8(string(o.Head), "\ufffd"), strings.ToValidUTF8(string(o.Tail), "\ufffd")
	if missing := o.Total - int64(len(o.Head)+len(o.Tail)); missing > 0 {
		return fmt.Sprintf("%s\n[%d bytes are left out]\n%s", head, missing, tail)
	}
	return head + tail
}

// artifacts are the first of the files that lie in artifacts/ itself.
func artifacts(files []brig.File) []wire.ExecmanArtifact {
	out := []wire.ExecmanArtifact{}
	files = slices.Clone(files)
	slices.SortFunc(files, func(a, b brig.File) int { return strings.Compare(a.Path, b.Path) })
	for _, f := range files {
		if f.Path != path.Base(f.Path) || strings.HasPrefix(f.Path, ".") || len(f.Data) == 0 || len(out) == maxArtifacts {
			continue
		}
		out = append(out, wire.ExecmanArtifact{
			Name: f.Path, MIMEType: brig.ArtifactTypes[strings.ToLower(path.Ext(f.Path))], Size: int64(len(f.Data)), Content: f.Data,
		})
	}
	return out
}
