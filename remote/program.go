package remote

import (
	"crypto/rand"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/brig-run/brig"
)

// CheckSupported returns an error for the first feature of a program that a
// code-only service does not support. who is the provider's title.
func CheckSupported(p brig.Program, sio brig.IO, who string, languages ...brig.Language) error {
	refuse := func(field, what, instead string) error {
		e := brig.Errorf(brig.FailedPrecondition, "%s %s", who, what)
		e.Field = field
		return e.WithHint("%s, or choose another provider", instead)
	}
	switch {
	case len(p.Command) > 0:
		return refuse("command", "runs programs in a language, not commands", "give code with its language")
	case p.Language == brig.TypeScript && !slices.Contains(languages, brig.TypeScript):
		return refuse("language", "runs no TypeScript that is not compiled", "give JavaScript")
	case !slices.Contains(languages, p.Language):
		return refuse("language", fmt.Sprintf("runs no %s", brig.Clip(string(p.Language), 40)), "use "+joinLanguages(languages))
	case p.Image != "":
		return refuse("image", "has images of its own", "leave it out")
	case len(p.Env) > 0:
		return refuse("env", "takes no environment", "give arguments")
	case len(p.Files) > 0:
		return refuse("files", "takes no files", "give arguments")
	case len(p.Egress.Rules) > 0 || p.Egress.Bandwidth != 0:
		return refuse("egress", "has no rules of where a program connects to", "leave it out")
	case len(p.Secrets) > 0:
		return refuse("secrets", "is told no secrets", "leave them out")
	case p.Workspace.Name != "" || p.Workspace.ID != "":
		return refuse("workspace", "has no workspaces", "leave it out")
	case len(p.Volumes) > 0:
		return refuse("volumes", "mounts no volumes", "leave them out")
	case !brig.IsDefaultUser(p.User):
		return refuse("user", "runs programs as one user of its own", "leave it out")
	case sio.Stdin != nil || sio.Result != nil:
		return refuse("stdin", "gives programs no input", "give arguments")
	}
	return nil
}

func joinLanguages(languages []brig.Language) string {
	var names []string
	for _, l := range languages {
		names = append(names, string(l))
	}
	return strings.Join(names, " or ")
}

// NewOutcome creates the outcome of a program that starts now.
func NewOutcome(p brig.Program, sio brig.IO) *brig.Outcome {
	o := &brig.Outcome{Sandbox: p.SandboxName}
	o.ExecID, o.Started = "ex"+strings.ToLower(rand.Text()), time.Now().UTC()
	if sio.Started != nil {
		sio.Started(o.ExecID)
	}
	return o
}

// Finish adds the program's output to the outcome and writes it to the caller's
// streams.
func Finish(o *brig.Outcome, p brig.Program, sio brig.IO, stdout, stderr []byte) error {
	o.Done = true
	for _, s := range []struct {
		text []byte
		to   io.Writer
		kept *brig.Output
	}{{stdout, sio.Stdout, &o.Stdout}, {stderr, sio.Stderr, &o.Stderr}} {
		*s.kept = NewOutput(s.text, p.Limits.Output)
		if s.to != nil && len(s.text) > 0 {
			if _, err := s.to.Write(s.text); err != nil {
				return fmt.Errorf("write output: %w", err)
			}
		}
	}
	return nil
}

// SetTimedOut sets the outcome of a program that exceeded its time limit. bound
// describes the limit.
func SetTimedOut(o *brig.Outcome, bound string) {
	o.Duration = time.Since(o.Started)
	o.ExitCode, o.TimedOut = 124, true
	o.Error = &brig.ProgramError{
		Code: brig.Timeout.Code(), Name: string(brig.Timeout),
		Message: fmt.Sprintf("the program timed out (%s)", bound),
		Hint:    "raise timeout_ms, and the provider's timeout if that is less",
	}
}

// SetOutOfMemory sets the outcome of a program that exceeded its memory limit.
func SetOutOfMemory(o *brig.Outcome) {
	o.ExitCode, o.OOMKilled, o.Signal = 137, true, "SIGKILL"
	o.Error = &brig.ProgramError{
		Code: brig.OutOfMemory.Code(), Name: string(brig.OutOfMemory),
		Message: "the program exceeded its memory limit", Hint: "use less, or choose a provider that gives more",
	}
}

// lastLinePattern matches the last line of a Python traceback, and firstWord the first
// line of a JavaScript one.
var (
	lastLinePattern = regexp.MustCompile(`(?m)^((?:\w+\.)*\w+)(?:: (.*))?\s*\z`)
	firstWord       = regexp.MustCompile(`(?m)^(?:Uncaught )?(\w*(?:Error|Exception)): (.*)$`)
)

// maxTraceback is the maximum size of the traceback in an error.
const maxTraceback = 20000

// ParseException extracts the exception that ended a program from the program's
// standard error. It returns nil if there is none.
func ParseException(language brig.Language, stderr string) *brig.ProgramError {
	trace := strings.TrimRight(stderr, "\n")
	var m []string
	if language == brig.Python {
		pos := strings.LastIndex(trace, "Traceback (most recent call last):")
		if pos < 0 {
			return nil
		}
		trace = trace[pos:]
		m = lastLinePattern.FindStringSubmatch(trace)
	} else {
		m = firstWord.FindStringSubmatch(trace)
	}
	if m == nil {
		return nil
	}
	name := m[1][strings.LastIndex(m[1], ".")+1:]
	return &brig.ProgramError{Name: name, Message: brig.Clip(m[2], 4000), Traceback: trace[max(0, len(trace)-maxTraceback):]}
}

// RemoteEnforcement returns the enforcement levels of a program that another service
// runs. service describes that service.
func RemoteEnforcement(service string) map[brig.Area]brig.Enforcement {
	out := map[brig.Area]brig.Enforcement{}
	for _, a := range brig.Areas {
		e := brig.Enforcement{Level: brig.LevelNone, How: "what " + service + " does"}
		switch a {
		case brig.AreaOutput:
			e = brig.Enforcement{Level: brig.LevelBoundary, How: "this server keeps no more of it than the limit"}
		case brig.AreaTime:
			e = brig.Enforcement{Level: brig.LevelBoundary, How: "this server's clock"}
			e.Lower(brig.LevelGaps, "when time runs out nobody waits for the program any more; %s ends it by its own limit", service)
		case brig.AreaIsolation, brig.AreaMemory:
			e.Lower(brig.LevelGaps, "it is what %s was set up with, and not looked at from here", service)
		default:
			e.Lower(brig.LevelNone, "%s is not told of it", service)
		}
		if e.Level != brig.LevelBoundary {
			e.Help = "choose a provider with machines of its own"
		}
		out[a] = e
	}
	return out
}
