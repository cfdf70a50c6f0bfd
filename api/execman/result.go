package execman

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/brig-run/brig"
	v1 "github.com/brig-run/brig/api/v1"
)

// maxArtifacts limits the artifacts in a response.
const maxArtifacts = 10

// toResult converts the outcome of a program to a response. The response for a
// failed program has no output on stdout.
func toResult(language brig.Language, o *brig.Outcome) *v1.ExecmanResult {
	r := emptyResult()
	r.TimeUsedMS = o.Duration.Milliseconds()
	r.Stdout, r.Stderr, r.ExitCode = outputText(o.Stdout), outputText(o.Stderr), o.ExitCode
	exceeded := func(resource string, code int, stderr string) *v1.ExecmanResult {
		r.Status, r.Resource, r.ExitCode, r.Stdout, r.Stderr = v1.ExecmanResource, &resource, code, "", stderr
		return r
	}
	switch {
	case o.TimedOut && o.Signal != "":
		// The program did not end after it was requested to end.
		return rejectedResult(v1.ExecmanInternalError, v1.ExecmanInternal, v1.ExecmanTimeoutStderr)
	case o.TimedOut:
		return exceeded(v1.ExecmanTime, v1.ExecmanTimeout, "Execution timeout")
	case o.OOMKilled:
		return exceeded(v1.ExecmanMemory, v1.ExecmanOutOfMemory, "Memory limit exceeded (killed by OOM)")
	case o.ExitCode != 0 || o.Error != nil:
		return toFailedResult(r, o)
	}
	r.Status, r.Artifacts = v1.ExecmanSuccess, selectArtifacts(o.Artifacts)
	switch {
	case o.Value != nil:
		r.Result.Present, r.Result.Value = true, o.Value
	case language == brig.JavaScript:
		// Some versions of RAGFlow reject undefined as a result. Other versions
		// accept it, and their test suite contains such programs. JSON has no
		// undefined.
		r.Result.Present, r.Result.Value = true, json.RawMessage("null")
	}
	return r
}

// toFailedResult classifies a failed program by its error output.
func toFailedResult(r *v1.ExecmanResult, o *brig.Outcome) *v1.ExecmanResult {
	r.Stdout, r.ExitCode = "", cmp.Or(r.ExitCode, 1)
	if r.Stderr == "" && o.Error != nil {
		r.Stderr = o.Error.Name + ": " + o.Error.Message + "\n"
	}
	file, syscall, memory, nonzero := v1.ExecmanFile, v1.ExecmanSyscall, v1.ExecmanMemory, v1.ExecmanNonzero
	switch {
	case strings.Contains(r.Stderr, "Permission denied"):
		r.Status, r.Unauthorized = v1.ExecmanUnauthorized, &file
	case strings.Contains(r.Stderr, "Operation not permitted"):
		r.Status, r.Unauthorized = v1.ExecmanUnauthorized, &syscall
	case strings.Contains(r.Stderr, "MemoryError"):
		r.Status, r.Resource = v1.ExecmanResource, &memory
	default:
		r.Status, r.Runtime = v1.ExecmanProgramError, &nonzero
	}
	return r
}

// errorResult returns the response for a program that did not run. It returns nil
// if the client has disconnected.
func errorResult(err error) *v1.ExecmanResult {
	apiErr := brig.AsError(err)
	switch apiErr.Kind {
	case brig.Canceled:
		return nil
	case brig.PolicyBlocked:
		lines := strings.TrimPrefix(apiErr.Message, v1.ExecmanUnsafe+". ")
		return rejectedResult(v1.ExecmanRefused, v1.ExecmanUnsafe, strings.ReplaceAll(lines, "; Line ", "\nLine "))
	case brig.RateLimited:
		const message = "Too many requests, please try again later"
		return rejectedResult(v1.ExecmanTooMany, message, message)
	case brig.Unavailable, brig.CreationFailed:
		return busyResult()
	case brig.NotInitialized, brig.ConnectionFailed, brig.InvalidConfig:
		// More capacity would not help. An operator must change the
		// configuration.
		return rejectedResult(v1.ExecmanRefused, v1.ExecmanUnforeseen, strings.TrimSuffix(apiErr.Message+": "+apiErr.Hint, ": "))
	case brig.Timeout:
		return rejectedResult(v1.ExecmanInternalError, v1.ExecmanInternal, apiErr.Message)
	}
	return rejectedResult(v1.ExecmanRefused, v1.ExecmanUnforeseen, apiErr.Message)
}

func busyResult() *v1.ExecmanResult {
	return rejectedResult(v1.ExecmanBusy, v1.ExecmanNoneFree, "Container pool is busy")
}

func rejectedResult(code int, detail, stderr string) *v1.ExecmanResult {
	r := emptyResult()
	r.Status, r.ExitCode, r.Detail, r.Stderr = v1.ExecmanRunner, code, detail, stderr
	return r
}

func emptyResult() *v1.ExecmanResult {
	return &v1.ExecmanResult{Artifacts: []v1.ExecmanArtifact{}, Result: v1.ExecmanValue{Type: "json"}}
}

// outputText returns the retained output of a stream, with a note if a part is
// missing.
func outputText(o brig.Output) string {
	head, tail := strings.ToValidUTF8(string(o.Head), "\ufffd"), strings.ToValidUTF8(string(o.Tail), "\ufffd")
	if missing := o.Total - int64(len(o.Head)+len(o.Tail)); missing > 0 {
		return fmt.Sprintf("%s\n[%d bytes are left out]\n%s", head, missing, tail)
	}
	return head + tail
}

// selectArtifacts returns the first maxArtifacts files that are directly in
// artifacts/.
func selectArtifacts(files []brig.File) []v1.ExecmanArtifact {
	out := []v1.ExecmanArtifact{}
	files = slices.Clone(files)
	slices.SortFunc(files, func(a, b brig.File) int { return strings.Compare(a.Path, b.Path) })
	for _, f := range files {
		if f.Path != path.Base(f.Path) || strings.HasPrefix(f.Path, ".") || len(f.Data) == 0 || len(out) == maxArtifacts {
			continue
		}
		out = append(out, v1.ExecmanArtifact{
			Name: f.Path, MIMEType: brig.ArtifactTypes[strings.ToLower(path.Ext(f.Path))], Size: int64(len(f.Data)), Content: f.Data,
		})
	}
	return out
}
