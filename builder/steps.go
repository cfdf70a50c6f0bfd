package builder

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/brig-run/brig"
)

// defaultDir is the working directory of the first step, as in E2B.
const defaultDir = "/home/user"

// maxEnv is the maximum number of variables that a build sets.
const maxEnv = 1000

// stepError is the failure of a command of a build.
type stepError struct{ message string }

func (e *stepError) Error() string { return e.message }

func failf(format string, args ...any) error { return &stepError{fmt.Sprintf(format, args...)} }

// account is a user of the sandbox.
type account struct{ run string } // for brig.Command

// accountOf returns the account of a brig.Command's user.
func accountOf(run string) account {
	switch run {
	case "", "1000:1000":
		run = "user"
	case "0:0":
		run = "root"
	}
	return account{run: run}
}

// check checks the arguments of a step. Fields in its errors follow "steps[i]".
func (s Step) check() error {
	for _, a := range s.Args {
		if len(a) > maxText {
			return brig.InvalidField(".args", "one is longer than %d bytes", maxText)
		}
		if strings.ContainsRune(a, 0) {
			return brig.InvalidField(".args", "one contains a NUL character")
		}
	}
	bounds := map[StepKind][2]int{Run: {1, 2}, Copy: {2, 4}, Workdir: {1, 1}, User: {1, 2}, Env: {2, 2 * maxEnv}}
	b, ok := bounds[s.Kind]
	switch {
	case !ok:
		return brig.InvalidField(".type", "there is no step %q", brig.Clip(string(s.Kind), 40)).WithHint("use RUN, COPY, WORKDIR, USER or ENV")
	case len(s.Args) < b[0] || len(s.Args) > b[1] || s.Kind == Env && len(s.Args)%2 != 0:
		return brig.InvalidField(".args", "%s does not take %d arguments", s.Kind, len(s.Args))
	case s.Kind == Copy && !isHash(s.Files):
		return brig.InvalidField(".filesHash", "COPY needs the hash of its files: 64 hexadecimal digits")
	case s.Kind == Copy && s.arg(3) != "" && !isMode(s.arg(3)):
		return brig.InvalidField(".args", "%q is not a mode", brig.Clip(s.arg(3), 20)).WithHint("for example 0755")
	case s.Kind == Copy && strings.Trim(s.arg(2), userLetters+":") != "":
		return brig.InvalidField(".args", "%q is not an owner", brig.Clip(s.arg(2), 80)).WithHint("for example root or user:user")
	}
	return nil
}

// arg returns an argument, or an empty string if the step does not have it.
func (s Step) arg(i int) string {
	if i >= len(s.Args) {
		return ""
	}
	return s.Args[i]
}

// describe returns a step as a line of a Dockerfile.
func describe(s Step) string {
	text := string(s.Kind)
	for i, a := range s.Args {
		if s.Kind == Copy && i > 1 {
			break
		}
		if s.Kind == Env && i%2 == 1 {
			continue // a value may be a credential
		}
		text += " " + a
	}
	return brig.Clip(text, 1000)
}

func isMode(s string) bool {
	n, err := strconv.ParseUint(s, 8, 16)
	return err == nil && n <= 0o7777
}

func (r *activeRun) runStep(ctx context.Context, s Step) error {
	switch s.Kind {
	case Run:
		return r.runCommand(ctx, s)
	case Copy:
		return r.copyFiles(ctx, s)
	case Workdir:
		return r.setDir(ctx, s.Args[0])
	case User:
		return r.setUser(ctx, s.Args[0])
	default:
		return r.setEnv(ctx, s.Args)
	}
}

// setEnv sets variables for the following steps and for the sandboxes. Values can refer to variables
// of earlier steps and of the sandbox, as in a Dockerfile.
func (r *activeRun) setEnv(ctx context.Context, args []string) error {
	for i := 0; i < len(args); i += 2 {
		value, err := r.expand(ctx, args[i+1])
		if err != nil {
			return err
		}
		r.state.env[args[i]] = value
		if n := envBytes(r.state.env); n > maxEnvBytes {
			return failf("the variables of the build take more than %d bytes", maxEnvBytes)
		}
	}
	if err := brig.CheckEnv("env", r.state.env); err != nil {
		return failf("%s", brig.AsError(err).Message)
	}
	return nil
}

func envBytes(env map[string]string) (n int) {
	for k, v := range env {
		n += len(k) + len(v)
	}
	return n
}

// loginScript runs its argument in a login shell of the image. A user that is given by its IDs gets the
// name and the home of its account, as E2B's clients get them in sandboxes.
const loginScript = `case $USER in
'' | *[!0-9]*) ;;
*) if [ -r /etc/passwd ]; then
  while IFS=: read -r brig_name _ brig_id _ _ brig_home _; do
    if [ "$brig_id" = "$USER" ]; then
      if [ "$HOME" = /home/user ]; then HOME=${brig_home:-/}; fi
      USER=$brig_name LOGNAME=$brig_name
      break
    fi
  done </etc/passwd
fi ;;
esac
if [ -x /bin/bash ]; then exec /bin/bash -l -c "$1"; fi
exec /bin/sh -l -c "$1"`

// login runs a command in a login shell, as E2B's clients run commands in sandboxes.
func login(command string) []string {
	return []string{"/bin/sh", "-c", loginScript, "sh", command}
}

// runCommand runs a RUN step.
func (r *activeRun) runCommand(ctx context.Context, s Step) error {
	user := r.state.user
	if name := s.arg(1); name != "" {
		var err error
		if user, err = r.findAccount(ctx, name); err != nil {
			return err
		}
		if user.run == "" {
			return failf("failed to run command '%s': command failed: unauthenticated: invalid username: '%s'", brig.Clip(s.Args[0], 200), brig.Clip(name, 80))
		}
	}
	return r.exec(ctx, brig.Clip(s.Args[0], 200), brig.Command{Argv: login(s.Args[0]), Env: r.state.env, Dir: r.state.dir, User: user.run})
}

// exec runs a command in the sandbox, and adds its output to the log. what names the command in the
// error for a failure.
func (r *activeRun) exec(ctx context.Context, what string, cmd brig.Command) error {
	cmd.Timeout = min(buildTimeout, r.bounds.MaxTimeout)
	last := &lastLines{}
	out := &lineWriter{log: r.log, level: "info", step: r.step, last: last}
	errs := &lineWriter{log: r.log, level: "warn", step: r.step, last: last}
	res, err := r.command(ctx, cmd, brig.IO{Stdout: out, Stderr: errs})
	out.flush()
	errs.flush()
	if err != nil {
		return err
	}
	return r.explain(resultError(what, res, last.text()))
}

// explain adds the remedy to the failure of a command that found no space.
func (r *activeRun) explain(err error) error {
	if f, ok := errors.AsType[*stepError](err); ok && strings.Contains(strings.ToLower(f.message), "no space left on device") {
		return failf("%s (the template's sandboxes have %s of disk space; request more free space, in E2B's SDKs with minFreeDiskMb)",
			f.message, brig.FormatBytes(r.build.Limits.Disk))
	}
	return err
}

// resultError returns an error if a command failed. last is the end of its output.
func resultError(what string, res *brig.Result, last string) error {
	reason := fmt.Sprintf("exit status %d", res.ExitCode)
	switch {
	case res.TimedOut:
		reason = "it took too long"
	case res.OOMKilled:
		reason = "it used more memory than the template's sandboxes have"
	case res.ExitCode == 0:
		return nil
	}
	text := fmt.Sprintf("failed to run command '%s': %s", what, reason)
	if last != "" {
		text += ": " + last
	}
	return &stepError{text}
}

// asRoot runs a script of the builder as root. The script's arguments are args.
func (r *activeRun) asRoot(ctx context.Context, what, script string, args ...string) error {
	return r.exec(ctx, what, brig.Command{Argv: slices.Concat([]string{"/bin/sh", "-c", script, "sh"}, args), Dir: "/", User: "root"})
}

// box returns the ID of the sandbox in which the steps run.
func (r *activeRun) box() string { return string(r.build.Files) }

// setDir creates the working directory of the following steps.
func (r *activeRun) setDir(ctx context.Context, dir string) error {
	dir, err := r.expand(ctx, dir)
	if err != nil {
		return err
	}
	if !path.IsAbs(dir) {
		dir = path.Join(r.state.dir, dir)
	}
	dir = path.Clean(dir)
	const script = `set -e; if [ ! -d "$1" ]; then mkdir -p -- "$1"; chown -- "$2" "$1"; fi`
	if err := r.asRoot(ctx, "mkdir -p "+brig.Clip(dir, 200), script, dir, r.state.user.owner()); err != nil {
		return err
	}
	r.state.dir = dir
	return nil
}

// owner returns the account for chown.
func (a account) owner() string {
	if a.run == "user" {
		return "1000:1000"
	}
	if a.run == "root" {
		return "0:0"
	}
	return a.run
}

const userLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"

// setUser sets the user of the following steps, and creates the account if the image has none. A group
// after the name is ignored: commands run with the group of the account.
func (r *activeRun) setUser(ctx context.Context, text string) error {
	name, group, _ := strings.Cut(text, ":")
	invalid := failf("failed to set the user: invalid username: '%s'", brig.Clip(text, 80))
	if name == "" || len(name) > 32 || strings.Trim(name, userLetters) != "" || strings.Trim(group, userLetters) != "" || strings.HasPrefix(name, "-") {
		return invalid
	}
	if isNumber(name) {
		if group == "" || !isNumber(group) {
			group = name
		}
		r.state.user = accountOf(name + ":" + group)
		return nil
	}
	const script = `set -e
id -u "$1" >/dev/null 2>&1 && exit 0
if command -v useradd >/dev/null; then useradd -m -s "$([ -x /bin/bash ] && echo /bin/bash || echo /bin/sh)" "$1"
else adduser -D "$1"; fi`
	if err := r.asRoot(ctx, "useradd "+name, script, name); err != nil {
		return err
	}
	user, err := r.findAccount(ctx, name)
	if err != nil {
		return err
	}
	if user.run == "" {
		return invalid
	}
	r.state.user = user
	return nil
}

func isNumber(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// findAccount finds an account of the sandbox. Its field run is empty if there is none.
func (r *activeRun) findAccount(ctx context.Context, name string) (account, error) {
	if name == "root" || name == "user" {
		return accountOf(name), nil
	}
	if strings.Trim(name, userLetters) != "" || strings.HasPrefix(name, "-") {
		return account{}, nil
	}
	var out bytes.Buffer
	res, err := r.command(ctx, brig.Command{
		Argv: []string{"/bin/sh", "-c", `id -u "$1" && id -g "$1"`, "sh", name}, Dir: "/", User: "root", Timeout: time.Minute,
	}, brig.IO{Stdout: &limitedBuffer{&out, 256}})
	if err != nil || res.ExitCode != 0 {
		return account{}, err
	}
	ids := strings.Fields(out.String())
	if len(ids) != 2 {
		return account{}, nil
	}
	return accountOf(ids[0] + ":" + ids[1]), nil
}
