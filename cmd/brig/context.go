package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
)

// codeFlags are the flags of brig sandbox code.
type codeFlags struct {
	code, context, language string
	env                     []string
	timeout                 time.Duration
}

// contextCommands creates the subcommands of brig sandbox for code and interpreters.
type contextCommands struct{ *cli }

// commands returns the commands for the interpreters of a sandbox.
func (c contextCommands) commands() []*cobra.Command {
	return []*cobra.Command{c.codeCommand(), c.command()}
}

func (c contextCommands) codeCommand() *cobra.Command {
	var f codeFlags
	cmd := &cobra.Command{
		Use:   "code NAME [flags] [FILE]",
		Short: "Run code in an interpreter that keeps its variables",
		Long: `Run code in an interpreter of a sandbox. The interpreter keeps its variables from one
run to the next. Without --context, it is the sandbox's default one for the language. The
code comes from -c, a file, or standard input.`,
		Example: `  brig sandbox code one -c 'x = 2'
  brig sandbox code one -c 'x * 21'
  brig sandbox code one -l javascript script.js`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			code, err := c.readCode(f, args[1:])
			if err != nil {
				return err
			}
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				return c.runCode(ctx, svc, args[0], code)
			})
		},
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	fl.StringVarP(&f.code, "code", "c", "", "run this `code`")
	fl.StringVar(&f.context, "context", "", "run in the context with this `id`")
	fl.StringVarP(&f.language, "language", "l", "", "python (default), javascript, typescript or bash")
	fl.StringArrayVarP(&f.env, "env", "e", nil, "set a variable, as `NAME=VALUE`; NAME alone copies it from this environment")
	fl.DurationVar(&f.timeout, "timeout", 0, "time limit (default 30s)")
	return cmd
}

func (c contextCommands) readCode(f codeFlags, files []string) (brig.Code, error) {
	code := brig.Code{Context: f.context, Source: f.code, Timeout: f.timeout}
	var err error
	if code.Env, err = parsePairs("--env", f.env, true); err != nil {
		return code, err
	}
	if f.language != "" {
		if code.Language, err = brig.ParseContextLanguage(f.language); err != nil {
			return code, err
		}
	}
	if f.code == "" {
		name := "-"
		if len(files) > 0 {
			name = files[0]
		}
		b, err := readProgram(name)
		if err != nil {
			return code, err
		}
		code.Source = b
	}
	return code, nil
}

// runCode runs code, and prints its output and its values as they arrive. The exit code is 1 after
// an exception.
func (c contextCommands) runCode(ctx context.Context, svc brig.Service, name string, code brig.Code) error {
	stdout, stderr := c.guestOutput(c.stdout), c.guestOutput(c.stderr)
	defer func() { _ = finish(stderr) }() // fails only if standard error cannot be written
	var on func(brig.CodeEvent) error
	if !c.asJSON {
		on = func(e brig.CodeEvent) error {
			var err error
			switch {
			case e.Stdout != nil:
				_, err = stdout.Write(e.Stdout)
			case e.Stderr != nil:
				_, err = stderr.Write(e.Stderr)
			case e.Output != nil:
				_, err = fmt.Fprintln(stdout, describe(e.Output))
			}
			return err
		}
	}
	res, err := svc.RunCode(ctx, name, code, on)
	err = errors.Join(err, finish(stdout))
	if err != nil {
		return err
	}
	if res.Error != nil {
		c.code = 1
	}
	if c.asJSON {
		return c.printJSON(res)
	}
	if res.Error != nil {
		fmt.Fprintln(stderr, strings.TrimRight(cmp.Or(res.Error.Traceback, res.Error.Name+": "+res.Error.Value), "\n"))
	}
	if res.TimedOut {
		printProblem(c.stderr, "the code timed out", brig.Timeout.Code(), "raise --timeout")
	}
	return nil
}

func (c contextCommands) command() *cobra.Command {
	cmd := &cobra.Command{Use: "context", Aliases: []string{"ctx"}, Short: "Manage the interpreters (contexts) of a sandbox"}
	var spec struct {
		language, dir string
		env           []string
	}
	create := &cobra.Command{
		Use: "create NAME", Short: "Start an interpreter, and print its ID", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var s brig.ContextSpec
			var err error
			if s.Env, err = parsePairs("--env", spec.env, true); err != nil {
				return err
			}
			if spec.language != "" {
				if s.Language, err = brig.ParseContextLanguage(spec.language); err != nil {
					return err
				}
			}
			s.Dir = spec.dir
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				x, err := svc.CreateContext(ctx, args[0], s)
				return c.showContext(x, err)
			})
		},
	}
	create.Flags().StringVarP(&spec.language, "language", "l", "", "python (default), javascript, typescript or bash")
	create.Flags().StringVar(&spec.dir, "cwd", "", "working directory (default /workspace)")
	create.Flags().StringArrayVarP(&spec.env, "env", "e", nil, "set a variable, as `NAME=VALUE`; NAME alone copies it from this environment")
	ls := &cobra.Command{
		Use: "ls NAME", Aliases: []string{"list"}, Short: "List the interpreters of a sandbox", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error { return c.printContexts(ctx, svc, args[0]) })
		},
	}
	restart := &cobra.Command{
		Use: "restart NAME ID", Short: "Restart an interpreter; its variables are lost", Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				x, err := svc.RestartContext(ctx, args[0], args[1])
				return c.showContext(x, err)
			})
		},
	}
	interrupt := c.callCommand("interrupt", "Interrupt running code, as Ctrl-C does", brig.Service.InterruptContext)
	remove := c.callCommand("rm", "Remove an interpreter", brig.Service.RemoveContext)
	cmd.AddCommand(create, ls, interrupt, restart, remove)
	return cmd
}

// callCommand returns a command that calls f for a context and prints no output.
func (c contextCommands) callCommand(verb, short string, f func(brig.Service, context.Context, string, string) error) *cobra.Command {
	return &cobra.Command{
		Use: verb + " NAME ID", Short: short, Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error { return f(svc, ctx, args[0], args[1]) })
		},
	}
}

func (c contextCommands) showContext(x *brig.CodeContext, err error) error {
	if err != nil {
		return err
	}
	if c.asJSON {
		return c.printJSON(x)
	}
	_, err = fmt.Fprintln(c.stdout, x.ID)
	return err
}

func (c contextCommands) printContexts(ctx context.Context, svc brig.Service, name string) error {
	all, err := svc.Contexts(ctx, name)
	if err != nil {
		return err
	}
	return list(c.cli, all, "ID\tLANGUAGE\tINTERPRETER\tSTATE\tRUNS", func(x *brig.CodeContext) []string {
		return []string{x.ID, string(x.Spec.Language), x.Flavor + " " + x.Version, string(x.State), fmt.Sprint(x.Count)}
	})
}

func (c observeCommands) pool() *cobra.Command {
	return &cobra.Command{
		Use: "pool", Short: "Show the warm pool: sandboxes that are started in advance", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				classes, err := svc.Pool(ctx)
				if err != nil {
					return err
				}
				const header = "IMAGE\tLANGUAGE\tMEMORY\tTARGET\tREADY\tMAKING\tHITS\tMISSES\tREFILL"
				return list(c.cli, classes, header, func(s brig.PoolClass) []string {
					return []string{
						shortDigest(s.Image), cmp.Or(string(s.Language), "-"), brig.FormatBytes(s.Limits.Memory), fmt.Sprint(s.Target), fmt.Sprint(s.Ready),
						fmt.Sprint(s.Making), fmt.Sprint(s.Hits), fmt.Sprint(s.Misses), s.Refill.Round(time.Millisecond).String(),
					}
				})
			})
		},
	}
}

// describe returns the text of a value, or a list of its media types if it has no text.
func describe(r *brig.Rich) string {
	var text string
	if json.Unmarshal(r.Data["text/plain"], &text) == nil {
		return text
	}
	return "[" + strings.Join(slices.Sorted(maps.Keys(r.Data)), ", ") + "]"
}
