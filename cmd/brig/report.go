package main

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/brig-run/brig"
)

// These are the exit codes of brig itself, as opposed to a program's. The text exitCodes documents
// them.
const (
	exitUsage  = 2   // the command line is wrong
	exitError  = 125 // brig failed
	exitSignal = 130 // interrupted
)

// exitCodes is the text of brig help exit-codes.
const exitCodes = `brig run, and the commands exec, shell and attach of brig sandbox, exit with the
exit code of the program that they ran. brig doctor and brig screen exit with 1 if
they found a problem. All other codes are Brig's own:

  0    the command succeeded
  2    the command line or a value in it is wrong (SB010)
  124  the program exceeded its timeout (SB005)
  125  Brig failed; the error has a code, for example SB003 for no connection
  130  the command was interrupted with Ctrl-C
  137  the program exceeded its memory limit (SB006), or was killed

An error is printed on standard error as "brig: MESSAGE (CODE)", followed by a
line "hint: …" with the remedy. With --json it is the JSON document of the REST
API. docs/configuration.md lists the codes.`

// report prints an error in terms of the command that failed, and returns the
// exit code.
func (c *cli) report(cmd *cobra.Command, err error, interrupted bool) int {
	out := describeError(err, c.url == "")
	if c.asJSON {
		c.printError(out) // with the field names of the API
	} else {
		c.printError(replaceFieldsWithFlags(cmd, out))
	}
	switch {
	case interrupted:
		return exitSignal
	case out.Kind == brig.InvalidArgument:
		return exitUsage
	default:
		return exitError
	}
}

// describeError returns the error to print for err. If local is true, this process executed the
// command instead of a server.
func describeError(err error, local bool) *brig.Error {
	if e, ok := errors.AsType[*brig.Error](err); ok && e.Kind != brig.Internal {
		return e
	}
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return brig.Errorf(brig.Unavailable, "the disk is full: %s", reasonOf(err)).
			WithHint("free space, or choose a data folder on another disk with --data-dir")
	}
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return brig.Errorf(brig.FailedPrecondition, "%s", reasonOf(err)).WithHint("check the path and its permissions")
	}
	out := brig.AsError(err)
	if out.Kind == brig.Internal && local {
		out.Hint = "this is a bug in Brig, or a problem of this machine that brig doctor finds"
	}
	return out
}

// reasonOf describes why a file cannot be used: the operation, the path and the
// reason of the operating system.
func reasonOf(err error) string {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		operation := strings.TrimSuffix(e.Op, "at")
		if operation == "mkdir" {
			operation = "create"
		}
		return fmt.Sprintf("cannot %s %s: %v", operation, e.Path, e.Err)
	}
	return err.Error()
}

// unreadableError returns the error for a local file that cannot be read. The field is the flag
// whose value is the file, or empty for an argument.
func unreadableError(field, name string, err error) *brig.Error {
	return localFileError(field, "read", name, err)
}

// unwritableError is like unreadable, for a file or directory that cannot be
// written.
func unwritableError(field, name string, err error) *brig.Error {
	return localFileError(field, "write", name, err)
}

func localFileError(field, verb, name string, err error) *brig.Error {
	reason := err
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		reason = e.Err
	}
	out := brig.InvalidField(field, "cannot %s %s: %v", verb, sanitizeText(name), reason)
	switch {
	case errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT):
		out.Kind, out.Hint = brig.Unavailable, "free space on the disk"
	case verb == "read":
		out.Hint = "check the path: it is relative to the current folder"
	default:
		out.Hint = "choose a path that you can write to"
	}
	return out
}

// flagError translates an error of the flag parser into an error with a hint.
func flagError(cmd *cobra.Command, err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return newInvalidValueError(e)
	}
	if e, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		name := e.GetFlag().Name
		return brig.InvalidField("--"+name, "a value is missing").WithHint("for example --%s %s", name, exampleValue(e.GetFlag()))
	}
	if e, ok := errors.AsType[*pflag.NotExistError](err); ok {
		if e.GetSpecifiedShortnames() != "" {
			return brig.Errorf(brig.InvalidArgument, "unknown flag -%s", e.GetSpecifiedName()).WithHint("%s", helpHint(cmd))
		}
		unknown := brig.Errorf(brig.InvalidArgument, "unknown flag --%s", e.GetSpecifiedName())
		if near := nearestFlag(cmd, e.GetSpecifiedName()); near != "" {
			return unknown.WithHint("did you mean --%s?", near)
		}
		return unknown.WithHint("%s", helpHint(cmd))
	}
	return brig.Errorf(brig.InvalidArgument, "%v", err).WithHint("%s", helpHint(cmd))
}

func helpHint(cmd *cobra.Command) string { return "see " + cmd.CommandPath() + " --help" }

// newInvalidValueError returns the error for a value that a flag does not accept.
func newInvalidValueError(e *pflag.InvalidValueError) error {
	flag, value := e.GetFlag(), brig.Clip(e.GetValue(), 80)
	field := "--" + flag.Name
	if cause, ok := errors.AsType[*brig.Error](e.Unwrap()); ok {
		return brig.InvalidField(field, "%s", cause.Message).WithHint("%s", cause.Hint)
	}
	reject := func(rule string) *brig.Error {
		return brig.InvalidField(field, "%q is not %s", value, rule).WithHint("for example %s %s", field, exampleValue(flag))
	}
	switch flag.Value.Type() {
	case "duration":
		if _, err := strconv.ParseFloat(value, 64); err == nil {
			return brig.InvalidField(field, "%s has no unit", value).WithHint("%s %ss is %s seconds; other units are ms, m and h", field, value, value)
		}
		return reject("a duration")
	case "int", "int64":
		return reject("a whole number")
	case "float64":
		return reject("a number")
	case "bool":
		return brig.InvalidField(field, "%q is neither true nor false", value).WithHint("give %s, or leave it out", field)
	}
	return brig.InvalidField(field, "%v", e.Unwrap())
}

// exampleValue returns a value that a flag accepts.
func exampleValue(f *pflag.Flag) string {
	switch f.Value.Type() {
	case "duration":
		return "30s"
	case "int", "int64":
		return "10"
	case "float64":
		return "0.5"
	}
	name, usage := pflag.UnquoteUsage(f)
	if _, example, ok := strings.Cut(usage, "for example "); ok {
		example, _, _ = strings.Cut(example, " ")
		return strings.Trim(example, ",;)")
	}
	if name == "string" || name == "strings" || name == "" {
		return strings.ToUpper(f.Name)
	}
	return strings.ToUpper(name)
}

// checkArguments returns a validator whose error for a wrong number of
// arguments lists their names.
func checkArguments(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		err := check(cmd, args)
		if err == nil {
			return nil
		}
		if e, ok := errors.AsType[*brig.Error](err); ok {
			return e
		}
		names := argumentsOf(cmd)
		usage := fmt.Sprintf("usage: %s", cmd.UseLine())
		switch {
		case len(names) == 0 && len(args) > 0:
			return brig.Errorf(brig.InvalidArgument, "%s takes no arguments, but got %q", cmd.CommandPath(), args[0]).WithHint("%s", usage)
		case len(args) < len(names):
			return brig.Errorf(brig.InvalidArgument, "%s is missing", names[len(args)]).WithHint("%s", usage)
		case len(args) > 0:
			return brig.Errorf(brig.InvalidArgument, "too many arguments: %q", args[len(args)-1]).WithHint("%s", usage)
		default:
			return brig.Errorf(brig.InvalidArgument, "an argument is missing").WithHint("%s", usage)
		}
	}
}
