package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/v1"
)

// runFlags are the flags of run.
type runFlags struct {
	image, language, code, name, user, arguments string
	memory, disk                                 string
	cpus                                         float64
	processes, openFiles                         int
	timeout                                      time.Duration
	env, labels, files, secrets                  []string
	artifacts                                    string
	interactive                                  bool
	egress                                       egressFlags
	workspace                                    workspaceFlags
	volumes                                      []string
	require                                      []string
	place                                        placeFlags
}

// runCommands creates the commands that run or check a program without a persistent sandbox.
type runCommands struct{ *cli }

func (c runCommands) command() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run [flags] (-c CODE | FILE [-- ARG…] | [--] CMD ARG…)",
		Short: "Run a program in a new sandbox, and remove the sandbox",
		Long: `Run a program in a new sandbox, and remove the sandbox when the program ends. The
exit code is the program's.

The program is code (-c), a source file with arguments, or a command of the image.
The first argument is a source file if this file exists or has an extension such as
.py; "-" reads the source from standard input. Flags for brig precede the
command, and before the arguments of a file.

If Python, JavaScript or TypeScript code has a function main, it is called with the
values of --args, and its result is printed as JSON.`,
		Example: `  brig run -c 'print(6*7)'
  brig run script.py -- --verbose input.csv
  brig run --memory 256MiB --timeout 10s ls -la /
  brig run -c 'def main(n): return n*7' --args '{"n": 6}'
  brig run --image python:3.11-slim --allow pypi.org -- pip download requests`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := f.program(args, cmd.ArgsLenAtDash())
			if err != nil {
				return err
			}
			// One-shots need the records only for secrets and volumes.
			return c.use(cmd, len(p.Secrets)+len(p.Volumes) == 0, func(ctx context.Context, svc brig.Service) error {
				return c.run(ctx, svc, p, f)
			})
		},
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	fl.StringVarP(&f.code, "code", "c", "", "run this `code`")
	fl.StringVarP(&f.language, "language", "l", "", "python, javascript, typescript or bash (default: from the file's extension, else python)")
	fl.StringVar(&f.image, "image", "", "image, by name or digest (default \""+brig.HostImage+"\", or the provider's own)")
	fl.StringVar(&f.arguments, "args", "", "JSON `object` with the arguments of the function main")
	f.addLimits(cmd)
	f.egress.add(cmd)
	f.workspace.add(cmd)
	addVolumes(cmd, &f.volumes)
	addRequire(cmd, &f.require)
	f.place.add(cmd)
	fl.DurationVar(&f.timeout, "timeout", 0, "time limit of the program (default 30s)")
	fl.StringArrayVarP(&f.env, "env", "e", nil, "set a variable, as `NAME=VALUE`; NAME alone copies it from this environment")
	fl.StringArrayVar(&f.secrets, "secret", nil, "pass a secret, as `NAME` or NAME=VARIABLE")
	fl.StringArrayVar(&f.labels, "label", nil, "add a label, as `KEY=VALUE`")
	fl.StringArrayVar(&f.files, "file", nil, "copy `FILE` into /workspace; PATH=FILE copies it to another path")
	fl.StringVar(&f.artifacts, "artifacts", "", "save the files of artifacts/ to this `folder`")
	fl.StringVar(&f.user, "user", "", "run as user (default) or root")
	fl.StringVar(&f.name, "name", "", "name of the sandbox (default: generated)")
	fl.BoolVarP(&f.interactive, "stdin", "i", false, "pass standard input to the program")
	return cmd
}

// program returns the program that the flags and arguments specify: code, a source file or a
// command.
func (f *runFlags) program(args []string, dash int) (brig.Program, error) {
	p := brig.Program{Image: f.image, SandboxName: f.name, User: f.user, Timeout: f.timeout, Secrets: parseSecretUses(f.secrets)}
	err := f.setSource(&p, args, dash)
	if err != nil {
		return p, err
	}
	if f.arguments != "" {
		if !json.Valid([]byte(f.arguments)) {
			return p, brig.InvalidField("--args", "the value is not JSON").WithHint(`for example --args '{"name":"World"}'`)
		}
		p.Arguments = json.RawMessage(f.arguments)
	}
	if p.Limits, err = f.limits(); err != nil {
		return p, err
	}
	if p.Egress, err = f.egress.egress(); err != nil {
		return p, err
	}
	if p.Workspace, err = f.workspace.use(); err != nil {
		return p, err
	}
	if p.Volumes, err = parseVolumes(f.volumes); err != nil {
		return p, err
	}
	p.Placement = f.place.placement()
	if p.Require, err = parseRequirement(f.require); err != nil {
		return p, err
	}
	if p.Env, err = parsePairs("--env", f.env, true); err != nil {
		return p, err
	}
	if p.Labels, err = parsePairs("--label", f.labels, false); err != nil {
		return p, err
	}
	files, err := readFiles(f.files)
	p.Files = append(p.Files, files...)
	return p, err
}

// setSource sets the code or the command of a program.
func (f *runFlags) setSource(p *brig.Program, args []string, dash int) error {
	if len(args) == 0 && f.code == "" {
		return brig.Errorf(brig.InvalidArgument, "nothing to run").
			WithHint("give code (brig run -c 'print(6*7)'), a file (brig run script.py), or a command (brig run ls -la)")
	}
	if len(args) > 0 && f.code != "" {
		return brig.Errorf(brig.InvalidArgument, "-c cannot be combined with %q", brig.Clip(args[0], 80)).
			WithHint("pass values to the code with --args '{…}' or --env NAME=VALUE; flags for brig precede a command")
	}
	if len(args) > 0 && (dash == 0 || !isSource(args[0])) {
		p.Command = args
		return nil
	}
	name, language := "", f.language
	if p.Code = f.code; len(args) > 0 {
		name, language = args[0], cmp.Or(f.language, languageOfFile(args[0]))
		var err error
		if p.Code, err = readProgram(name); err != nil {
			return err
		}
	}
	var err error
	if p.Language, err = brig.ParseLanguage(cmp.Or(language, string(brig.Python))); err != nil || len(args) < 2 {
		return err
	}
	command, file, err := scriptWithArguments(name, p.Code, p.Language, args[1:])
	p.Command, p.Files, p.Code, p.Language = command, []brig.File{file}, "", ""
	return err
}

// addLimits adds the flags that limits reads.
func (f *runFlags) addLimits(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.memory, "memory", "", "memory limit, for example 512MiB")
	fl.Float64Var(&f.cpus, "cpus", 0, "CPU limit, for example 0.5")
	fl.IntVar(&f.processes, "processes", 0, "limit of concurrent processes and threads")
	fl.StringVar(&f.disk, "disk", "", "limit of data written to disk, for example 1GiB")
	fl.IntVar(&f.openFiles, "open-files", 0, "limit of open files of each process")
}

func (f *runFlags) limits() (brig.Limits, error) {
	l := brig.Limits{CPUs: f.cpus, Processes: f.processes, OpenFiles: f.openFiles}
	var err error
	if l.Memory, err = parseSize("--memory", f.memory); err != nil {
		return l, err
	}
	l.Disk, err = parseSize("--disk", f.disk)
	return l, err
}

func parseSize(flag, s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	n, err := v1.ParseSize(s)
	if err != nil {
		return 0, brig.InvalidField(flag, "%q is not a size", s).WithHint("for example 512MiB, or a number of bytes")
	}
	return n, nil
}

// readProgram reads a program's source. - is standard input.
func readProgram(name string) (string, error) {
	if name == "-" {
		b, err := io.ReadAll(os.Stdin)
		return string(b), err
	}
	b, err := os.ReadFile(name)
	if err != nil {
		return "", unreadableError("", name, err)
	}
	return string(b), nil
}

// parsePairs parses flags of the form K=V. If inherit is set, K alone takes the value from brig's
// environment.
func parsePairs(flag string, list []string, inherit bool) (map[string]string, error) {
	out := map[string]string{}
	for _, kv := range list {
		k, v, ok := strings.Cut(kv, "=")
		if !ok && inherit {
			v, ok = os.LookupEnv(k)
			if !ok {
				continue
			}
		}
		if !ok || k == "" {
			return nil, brig.InvalidField(flag, "%q has no =", brig.Clip(kv, 80)).WithHint("for example %s NAME=value", flag)
		}
		out[k] = v
	}
	return out, nil
}

func readFiles(list []string) ([]brig.File, error) {
	var out []brig.File
	for _, s := range list {
		to, from, ok := strings.Cut(s, "=")
		if !ok {
			to, from = filepath.Base(s), s
		}
		b, err := os.ReadFile(from)
		if err != nil {
			return nil, unreadableError("--file", from, err).WithHint("give FILE, or PATH=FILE to choose the path in the sandbox")
		}
		out = append(out, brig.File{Path: to, Data: b})
	}
	return out, nil
}

// run runs a program and exits with its exit code.
func (c runCommands) run(ctx context.Context, svc brig.Service, p brig.Program, f runFlags) error {
	var sio brig.IO
	if f.interactive {
		sio.Stdin = c.stdin
	}
	if !c.asJSON {
		sio.Stdout, sio.Stderr = c.guestOutput(c.stdout), c.guestOutput(c.stderr)
		defer func() { _ = errors.Join(finish(sio.Stdout), finish(sio.Stderr)) }() // fails only if the output cannot be written
	}
	o, err := svc.Run(ctx, p, sio)
	if err != nil {
		return err
	}
	c.code = o.ExitCode
	if f.artifacts != "" {
		if err := saveArtifacts(f.artifacts, o.Artifacts); err != nil {
			return err
		}
	}
	if c.asJSON {
		return c.printJSON(o)
	}
	c.printSummary(o)
	return nil
}

// printSummary prints results that are not in the program's output.
func (c runCommands) printSummary(o *brig.Outcome) {
	if o.Value != nil && string(o.Value) != "null" {
		fmt.Fprintln(c.stdout, string(escapeJSON(o.Value)))
	}
	if e := o.Error; e != nil && (e.Code != "" || e.Traceback == "") {
		printProblem(c.stderr, e.Message, e.Code, replaceFieldsInHint(c.cmd, e.Hint))
	}
	c.printCommit(o.Workspace)
	for _, name := range o.Skipped {
		fmt.Fprintln(c.stderr, "brig: artifact not saved, because there are too many or it is too large:", sanitizeCell(name))
	}
}

func saveArtifacts(dir string, files []brig.File) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return unwritableError("--artifacts", dir, err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return unwritableError("--artifacts", dir, err)
	}
	defer root.Close()
	for _, f := range files {
		// os.Root confines the write, even if a name from the provider or a link points elsewhere.
		err := root.MkdirAll(path.Dir(f.Path), 0o755)
		if err == nil {
			err = root.WriteFile(f.Path, f.Data, 0o644)
		}
		if err != nil {
			return unwritableError("--artifacts", filepath.Join(dir, f.Path), err)
		}
	}
	return nil
}
