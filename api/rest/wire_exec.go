package rest

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door/wire"
)

func toCommand(in wire.ExecRequest) (brig.Command, error) {
	timeout, err := toDuration("timeout_ms", in.TimeoutMS)
	return brig.Command{
		Argv: in.Command, Shell: in.Shell, Env: in.Env, Dir: in.Cwd,
		User: in.User, Timeout: timeout, Survive: in.Survive,
	}, err
}

// toStdin reads the two forms of standard input; nil for neither.
func toStdin(text *string, b64 []byte) (io.Reader, error) {
	switch {
	case text != nil && b64 != nil:
		return nil, brig.InvalidField("stdin_b64", "is given beside stdin").WithHint("give one of the two")
	case text != nil:
		return strings.NewReader(*text), nil
	case b64 != nil:
		return strings.NewReader(string(b64)), nil
	}
	return nil, nil
}

func fromResult(r *brig.Result) wire.Result {
	return wire.Result{
		Exec: r.ExecID, Outputs: fromOutputs(r.Stdout, r.Stderr), ExitCode: r.ExitCode, Signal: r.Signal,
		TimedOut: r.TimedOut, OOMKilled: r.OOMKilled,
		Started: r.Started, DurationMS: r.Duration.Milliseconds(), Done: r.Done,
	}
}

func fromOutputs(stdout, stderr brig.Output) wire.Outputs {
	out := wire.Outputs{
		Truncated: stdout.Truncated() || stderr.Truncated(), StdoutBytes: stdout.Total, StderrBytes: stderr.Total,
	}
	out.Stdout, out.StdoutB64, out.StdoutCut = fromOutput(stdout)
	out.Stderr, out.StderrB64, out.StderrCut = fromOutput(stderr)
	return out
}

// fromOutput writes an output as text, as exact bytes when text cannot say
// it, and how it was cut when it was.
func fromOutput(o brig.Output) (text string, b64 []byte, cut *wire.Cut) {
	kept := slices.Concat(o.Head, o.Tail)
	if !o.Truncated() {
		if utf8.Valid(kept) {
			return string(kept), nil, nil
		}
		return readable(kept), kept, nil
	}
	cut = &wire.Cut{Head: len(o.Head), Tail: len(o.Tail)}
	text = fmt.Sprintf("%s\n[... %d bytes cut ...]\n%s", readable(o.Head), o.Total-int64(len(kept)), readable(o.Tail))
	if utf8.Valid(o.Head) && utf8.Valid(o.Tail) {
		kept = nil
	}
	return text, kept, cut
}

func readable(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") }

func fromExecution(x *brig.Execution) wire.Execution {
	c := x.Command
	return wire.Execution{
		Sandbox: string(x.Sandbox), Command: c.Argv, Shell: c.Shell, Env: c.Env, Cwd: c.Dir, User: c.User,
		TimeoutMS: c.Timeout.Milliseconds(), Survive: c.Survive, Result: fromResult(&x.Result),
	}
}

func fromExecutions(list []*brig.Execution) wire.Executions {
	out := wire.Executions{Execs: []wire.Execution{}}
	for _, x := range list {
		out.Execs = append(out.Execs, fromExecution(x))
	}
	return out
}
