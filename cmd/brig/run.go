package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door/wire"
)

// runFlags are the flags of run.
type runFlags struct {
	image, language, code, name, user, arguments string
	memory, disk                                 string
	cpus                                         float64
	processes                                    int
	timeout                                      time.Duration
	env, labels, files, secrets                  []string
	artifacts                                    string
	interactive                                  bool
	egress                                       egressFlags
	workspace                                    workspaceFlags
	require                                      []string
	place                                        placeFlags
}

func (c *cli) runCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run [flags] (-c CODE | FILE | -- CMD ARG…)",
		Short: "Run code or a command in a sandbox of its own that is gone afterwards",
		Example: `  brig run -c 'print(6*7)'
  brig run script.js
  brig run --memory 256MiB --timeout 10s -- sh -c 'echo hi | tr a-z A-Z'
  brig run -c 'def main(n): return n*7' --args '{"n": 6}'`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := f.program(args, cmd.ArgsLenAtDash())
			if err != nil {
				return err
			}
			// Secrets are in the records, which one-shots need no other way.
			return c.use(cmd, len(p.Secrets) == 0, func(ctx context.Context, svc brig.Service) error {
				return c.run(ctx, svc, p, f)
			})
		},
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	fl.StringVarP(&f.code, "code", "c", "", "the program's source")
	fl.StringVarP(&f.language, "language", "l", "", "python, javascript or bash (default: by the file's name, else python)")
	fl.StringVar(&f.image, "image", "", "image by name or digest (default "+brig.HostImage+", or the provider's own)")
	fl.StringVar(&f.arguments, "args", "", "JSON `object` for main")
	f.addLimits(cmd)
	f.egress.add(cmd)
	f.workspace.add(cmd)
	addRequire(cmd, &f.require)
	f.place.add(cmd)
	fl.DurationVar(&f.timeout, "timeout", 0, "wall time (default 30s)")
	fl.StringArrayVarP(&f.env, "env", "e", nil, "variable as `K=V`; K alone takes it from here")
	fl.StringArrayVar(&f.secrets, "secret", nil, "secret as `NAME` or NAME=VARIABLE")
	fl.StringArrayVar(&f.labels, "label", nil, "label as `K=V`")
	fl.StringArrayVar(&f.files, "file", nil, "`FILE` to put into /workspace, or PATH=FILE")
	fl.StringVar(&f.artifacts, "artifacts", "", "`folder` to save artifacts in")
	fl.StringVar(&f.user, "user", "", "user (default) or root")
	fl.StringVar(&f.name, "name", "", "name of the sandbox")
	fl.BoolVarP(&f.interactive, "stdin", "i", false, "pass standard input on")
	return cmd
}

// program reads the command line's three forms.
func (f *runFlags) program(args []string, dash int) (brig.Program, error) {
	p := brig.Program{Image: f.image, Name: f.name, User: f.user, Timeout: f.timeout, Secrets: secretUses(f.secrets)}
	given := 0
	for _, is := range []bool{f.code != "", dash != 0 && len(args) > 0, dash == 0 && len(args) > 0} {
		if is {
			given++
		}
	}
	if given != 1 || dash > 0 || dash < 0 && len(args) > 1 {
		return p, brig.Errorf(brig.InvalidArgument, "give one of -c CODE, FILE, or -- CMD ARG…").
			WithHint("for example: brig run -c 'print(6*7)'")
	}
	var err error
	switch {
	case dash == 0:
		p.Command = args
	case f.code != "":
		p.Code = f.code
		if f.language == "" {
			f.language = "python"
		}
	default:
		if p.Code, err = readProgram(args[0]); err != nil {
			return p, err
		}
		if f.language == "" {
			f.language = languageOfFile(args[0])
		}
	}
	if p.Code != "" {
		if p.Language, err = brig.ParseLanguage(f.language); err != nil {
			return p, err
		}
	}
	if f.arguments != "" {
		if !json.Valid([]byte(f.arguments)) {
			return p, brig.InvalidField("--args", "it is not JSON").WithHint(`for example --args '{"name":"World"}'`)
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
	p.Placement = f.place.placement()
	if p.Require, err = requirement(f.require); err != nil {
		return p, err
	}
	if p.Env, err = pairs("--env", f.env, true); err != nil {
		return p, err
	}
	if p.Labels, err = pairs("--label", f.labels, false); err != nil {
		return p, err
	}
	p.Files, err = readFiles(f.files)
	return p, err
}

// addLimits adds the flags that limits reads.
func (f *runFlags) addLimits(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.memory, "memory", "", "memory, for example 512MiB")
	fl.Float64Var(&f.cpus, "cpus", 0, "processors, for example 0.5")
	fl.IntVar(&f.processes, "processes", 0, "processes and threads at once")
	fl.StringVar(&f.disk, "disk", "", "what may be written, for example 1GiB")
}

func (f *runFlags) limits() (brig.Limits, error) {
	l := brig.Limits{CPUs: f.cpus, Processes: f.processes}
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
	n, err := wire.ParseSize(s)
	if err != nil {
		return 0, brig.InvalidField(flag, "%q is not a size", s).WithHint("for example 512MiB, or a number of bytes")
	}
	return n, nil
}

// readProgram reads a program's source; - is standard input.
func readProgram(name string) (string, error) {
	if name == "-" {
		b, err := io.ReadAll(os.Stdin)
		return string(b), err
	}
	b, err := os.ReadFile(name)
	if err != nil {
		return "", brig.Errorf(brig.InvalidArgument, "no program %q", name).
			WithHint("give a file, -c CODE, or -- CMD ARG…").Because(err)
	}
	return string(b), nil
}

func languageOfFile(name string) string {
	switch strings.ToLower(filepath.Ext(name)) {
	case ".ts", ".mts":
		return "typescript"
	case ".js", ".mjs", ".cjs":
		return "javascript"
	case ".sh", ".bash":
		return "bash"
	default:
		return "python"
	}
}

// pairs reads flags of the form K=V. With inherit, K alone takes the value
// from our own environment.
func pairs(flag string, list []string, inherit bool) (map[string]string, error) {
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
			return nil, brig.InvalidField(flag, "%q is not K=V", kv).WithHint("for example %s NAME=value", flag)
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
			return nil, brig.InvalidField("--file", "%q cannot be read", from).WithHint("give FILE or PATH=FILE").Because(err)
		}
		out = append(out, brig.File{Path: to, Data: b})
	}
	return out, nil
}

// run runs a program and makes its exit code ours.
func (c *cli) run(ctx context.Context, svc brig.Service, p brig.Program, f runFlags) error {
	var sio brig.IO
	if f.interactive {
		sio.Stdin = c.stdin
	}
	if !c.asJSON {
		sio.Stdout, sio.Stderr = c.stdout, c.stderr
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
	c.conclude(o)
	return nil
}

// conclude tells what the program's own output does not.
func (c *cli) conclude(o *brig.Outcome) {
	if o.Value != nil && string(o.Value) != "null" {
		fmt.Fprintln(c.stdout, string(o.Value))
	}
	if e := o.Error; e != nil && (e.Code != "" || e.Traceback == "") {
		fmt.Fprintf(c.stderr, "brig: %s", clean(e.Message))
		if e.Code != "" {
			fmt.Fprintf(c.stderr, " (%s)", e.Code)
		}
		fmt.Fprintln(c.stderr)
		if e.Hint != "" {
			fmt.Fprintln(c.stderr, "hint:", e.Hint)
		}
	}
	c.concludeWorkspace(o.Workspace)
	for _, name := range o.Skipped {
		fmt.Fprintln(c.stderr, "brig: artifact not returned, there are too many or it is too large:", cell(name))
	}
}

func saveArtifacts(dir string, files []brig.File) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, f := range files {
		// The root keeps names in it, whatever links a provider's have.
		err := root.MkdirAll(path.Dir(f.Path), 0o755)
		if err == nil {
			err = root.WriteFile(f.Path, f.Data, 0o644)
		}
		if err != nil {
			return fmt.Errorf("save artifact: %w", err)
		}
	}
	return nil
}
