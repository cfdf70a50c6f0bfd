package builder

import (
	"bytes"
	"context"
	"fmt"
	"os"
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
type account struct {
	name string // in /etc/passwd
	run  string // for brig.Command
}

// accountOf returns the account of a brig.Command's user.
func accountOf(run string) account {
	if run == "" {
		run = "user"
	}
	return account{name: run, run: run}
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
	bounds := map[StepKind][2]int{Run: {1, 2}, Copy: {2, 4}, Workdir: {1, 1}, User: {1, 1}, Env: {2, 2 * maxEnv}}
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

func (r *running) runStep(ctx context.Context, s Step) error {
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
		return r.setEnv(s.Args)
	}
}

// setEnv sets variables for the following steps and for the sandboxes. Values can refer to earlier
// variables, as in a Dockerfile.
func (r *running) setEnv(args []string) error {
	for i := 0; i < len(args); i += 2 {
		value := os.Expand(args[i+1], func(name string) string { return r.state.env[name] })
		if len(value) > maxText {
			return failf("the value of the variable %q is longer than %d bytes", brig.Clip(args[i], 80), maxText)
		}
		r.state.env[args[i]] = value
	}
	if err := brig.CheckEnv("env", r.state.env); err != nil {
		return failf("%s", brig.AsError(err).Message)
	}
	return nil
}

// login runs a command in a login shell of the image, as E2B's clients run commands in sandboxes.
func login(command string) []string {
	const choose = `if [ -x /bin/bash ]; then exec /bin/bash -l -c "$1"; fi; exec /bin/sh -l -c "$1"`
	return []string{"/bin/sh", "-c", choose, "sh", command}
}

// runCommand runs a RUN step.
func (r *running) runCommand(ctx context.Context, s Step) error {
	user := r.state.user
	if name := s.arg(1); name != "" {
		var err error
		if user, err = r.findAccount(ctx, name); err != nil {
			return err
		}
		if user.run == "" {
			return failf("failed to run command '%s': command failed: unauthenticated: invalid username: '%s'", brig.Clip(s.Args[0], 200), name)
		}
	}
	return r.exec(ctx, brig.Clip(s.Args[0], 200), brig.Command{Argv: login(s.Args[0]), Env: r.state.env, Dir: r.state.dir, User: user.run})
}

// exec runs a command in the sandbox, and adds its output to the log. what names the command in the
// error for a failure.
func (r *running) exec(ctx context.Context, what string, cmd brig.Command) error {
	cmd.Timeout = min(buildTimeout, r.LimitRange.MaxTimeout)
	out := &lineWriter{log: r.log, level: "info", step: r.step}
	errs := &lineWriter{log: r.log, level: "warn", step: r.step}
	res, err := r.Service.Exec(ctx, r.box, cmd, brig.IO{Stdout: out, Stderr: errs})
	last := out.flush()
	if e := errs.flush(); len(e) > 0 {
		last = e
	}
	if err != nil {
		return err
	}
	return resultError(what, res, last)
}

// resultError returns an error if a command failed. last are the last lines of its output.
func resultError(what string, res *brig.Result, last []string) error {
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
	if len(last) > 0 {
		text += ": " + brig.Clip(strings.Join(last, "\n"), 2000)
	}
	return &stepError{text}
}

// asRoot runs a script of the builder as root. The script's arguments are args.
func (r *running) asRoot(ctx context.Context, what, script string, args ...string) error {
	return r.exec(ctx, what, brig.Command{Argv: slices.Concat([]string{"/bin/sh", "-c", script, "sh"}, args), Dir: "/", User: "root"})
}

// setDir creates the working directory of the following steps.
func (r *running) setDir(ctx context.Context, dir string) error {
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

// setUser sets the user of the following steps, and creates the account if the image has none.
func (r *running) setUser(ctx context.Context, name string) error {
	if name == "" || len(name) > 32 || strings.Trim(name, userLetters) != "" || strings.HasPrefix(name, "-") {
		return failf("failed to set the user: invalid username: '%s'", brig.Clip(name, 80))
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
		return failf("failed to set the user: invalid username: '%s'", name)
	}
	r.state.user = user
	return nil
}

// findAccount finds an account of the sandbox. Its field run is empty if there is none.
func (r *running) findAccount(ctx context.Context, name string) (account, error) {
	if name == "root" || name == "user" {
		return account{name: name, run: name}, nil
	}
	if strings.Trim(name, userLetters) != "" || strings.HasPrefix(name, "-") {
		return account{}, nil
	}
	var out bytes.Buffer
	res, err := r.Service.Exec(ctx, r.box, brig.Command{
		Argv: []string{"/bin/sh", "-c", `id -u "$1" && id -g "$1"`, "sh", name}, Dir: "/", User: "root", Timeout: time.Minute,
	}, brig.IO{Stdout: &limitedBuffer{to: &out}})
	if err != nil || res.ExitCode != 0 {
		return account{}, err
	}
	ids := strings.Fields(out.String())
	if len(ids) != 2 {
		return account{}, nil
	}
	run := ids[0] + ":" + ids[1]
	switch run {
	case "0:0":
		run = "root"
	case "1000:1000":
		run = "user"
	}
	return account{name: name, run: run}, nil
}

// limitedBuffer drops what a guest writes beyond a few bytes.
type limitedBuffer struct{ to *bytes.Buffer }

// Write implements io.Writer.
func (l *limitedBuffer) Write(p []byte) (int, error) {
	const most = 256
	l.to.Write(p[:min(len(p), max(0, most-l.to.Len()))])
	return len(p), nil
}
