package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
)

// codeFlags are the flags of sandbox code.
type codeFlags struct {
	code, context, language string
	env                     []string
	timeout                 time.Duration
}

func (c *cli) sandboxCode() *cobra.Command {
	var f codeFlags
	cmd := &cobra.Command{
		Use:   "code NAME [flags] [FILE]",
		Short: "Run code in an interpreter of it that keeps its variables",
		Long: `Run code in an interpreter that keeps its variables from one run to the next.
Without --context it is the sandbox's default one of the language. Code comes
from -c, a file, or standard input.`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			code, err := c.codeOf(f, args[1:])
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
	fl.StringVarP(&f.code, "code", "c", "", "the code itself")
	fl.StringVar(&f.context, "context", "", "`id` of the context")
	fl.StringVarP(&f.language, "language", "l", "", "python (default), javascript, typescript or bash")
	fl.StringArrayVarP(&f.env, "env", "e", nil, "variable as `K=V`; K alone takes it from here")
	fl.DurationVar(&f.timeout, "timeout", 0, "wall time (default 30s)")
	return cmd
}

func (c *cli) codeOf(f codeFlags, files []string) (brig.Code, error) {
	code := brig.Code{Context: f.context, Source: f.code, Timeout: f.timeout}
	var err error
	if code.Env, err = pairs("--env", f.env, true); err != nil {
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

// runCode runs code, shows what it writes as it comes and then what it is
// worth. An exception makes the exit code 1.
func (c *cli) runCode(ctx context.Context, svc brig.Service, name string, code brig.Code) error {
	var on func(brig.CodeEvent) error
	if !c.asJSON {
		on = func(e brig.CodeEvent) error {
			var err error
			switch {
			case e.Stdout != nil:
				_, err = c.stdout.Write(e.Stdout)
			case e.Stderr != nil:
				_, err = c.stderr.Write(e.Stderr)
			case e.Output != nil:
				_, err = fmt.Fprintln(c.stdout, describe(e.Output))
			}
			return err
		}
	}
	res, err := svc.RunCode(ctx, name, code, on)
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
		fmt.Fprintln(c.stderr, strings.TrimRight(cmp.Or(res.Error.Traceback, res.Error.Name+": "+res.Error.Value), "\n"))
	}
	if res.TimedOut {
		fmt.Fprintln(c.stderr, "brig: its time was over")
	}
	return nil
}

func (c *cli) contextCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "context", Aliases: []string{"ctx"}, Short: "Interpreters in a sandbox that keep their variables"}
	var spec struct {
		language, dir string
		env           []string
	}
	create := &cobra.Command{
		Use: "create NAME", Short: "Start an interpreter; prints its id", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var s brig.ContextSpec
			var err error
			if s.Env, err = pairs("--env", spec.env, true); err != nil {
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
	create.Flags().StringArrayVarP(&spec.env, "env", "e", nil, "variable as `K=V`; K alone takes it from here")
	ls := &cobra.Command{
		Use: "ls NAME", Aliases: []string{"list"}, Short: "List a sandbox's interpreters", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error { return c.listContexts(ctx, svc, args[0]) })
		},
	}
	restart := &cobra.Command{
		Use: "restart NAME ID", Short: "End an interpreter and start another in its place", Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				x, err := svc.RestartContext(ctx, args[0], args[1])
				return c.showContext(x, err)
			})
		},
	}
	interrupt := c.onContext("interrupt", "Interrupt the code that runs, as Ctrl-C does", brig.Service.InterruptContext)
	remove := c.onContext("rm", "End an interpreter", brig.Service.RemoveContext)
	cmd.AddCommand(create, ls, interrupt, restart, remove)
	return cmd
}

// onContext is a command that does one thing to a context and prints nothing.
func (c *cli) onContext(verb, short string, f func(brig.Service, context.Context, string, string) error) *cobra.Command {
	return &cobra.Command{
		Use: verb + " NAME ID", Short: short, Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error { return f(svc, ctx, args[0], args[1]) })
		},
	}
}

func (c *cli) showContext(x *brig.CodeContext, err error) error {
	if err != nil {
		return err
	}
	if c.asJSON {
		return c.printJSON(x)
	}
	_, err = fmt.Fprintln(c.stdout, x.ID)
	return err
}

func (c *cli) listContexts(ctx context.Context, svc brig.Service, name string) error {
	all, err := svc.Contexts(ctx, name)
	if err != nil {
		return err
	}
	return list(c, all, "ID\tLANGUAGE\tINTERPRETER\tSTATE\tRUNS", func(x *brig.CodeContext) []string {
		return []string{x.ID, string(x.Spec.Language), x.Flavor + " " + x.Version, string(x.State), fmt.Sprint(x.Count)}
	})
}

func (c *cli) poolCommand() *cobra.Command {
	return &cobra.Command{
		Use: "pool", Short: "Show what waits to be used", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				shelves, err := svc.Pool(ctx)
				if err != nil {
					return err
				}
				const header = "IMAGE\tLANGUAGE\tMEMORY\tTARGET\tREADY\tMAKING\tHITS\tMISSES\tREFILL"
				return list(c, shelves, header, func(s brig.PoolShelf) []string {
					return []string{
						short(s.Image), cmp.Or(string(s.Language), "-"), brig.FormatBytes(s.Limits.Memory), fmt.Sprint(s.Target), fmt.Sprint(s.Ready),
						fmt.Sprint(s.Making), fmt.Sprint(s.Hits), fmt.Sprint(s.Misses), s.Refill.Round(time.Millisecond).String(),
					}
				})
			})
		},
	}
}

// describe says in one line of text what a value is.
func describe(r *brig.Rich) string {
	var text string
	if json.Unmarshal(r.Data["text/plain"], &text) == nil {
		return text
	}
	return "[" + strings.Join(slices.Sorted(maps.Keys(r.Data)), ", ") + "]"
}
