package main

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
)

func (c *cli) toolCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "tool",
		Aliases: []string{"tools"},
		Short:   "Call functions that agents use",
	}
	cmd.AddCommand(c.toolRun())
	return cmd
}

func (c *cli) toolRun() *cobra.Command {
	var (
		t                       brig.Tool
		arguments, schema, from string
		env                     []string
		timeout                 time.Duration
	)
	cmd := &cobra.Command{
		Use:   "run FILE",
		Short: "Call a function of a source, in a box that its next call finds again",
		Long: `Call a function of a source, in a box that its next call finds again, as Letta's
clients have it done: with the tenant's setup, its variables and its packages.
What the function returned is printed last; with --state, the agent's state after
the call goes back into that file.`,
		Example: `  brig tool run add.py --args '{"a": 2, "b": 40}'
  brig tool run remember.py --state agent.json --args '{"name": "Ann"}'`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if t.Source, err = readProgram(args[0]); err != nil {
				return err
			}
			if filepath.Ext(args[0]) == ".ts" {
				t.Language = brig.TypeScript
			}
			if from != "" {
				state, err := readProgram(from)
				if err != nil {
					return err
				}
				t.State = json.RawMessage(state)
			}
			if t.Env, err = pairs("env", env, true); err != nil {
				return err
			}
			t.Arguments, t.Schema, t.Timeout = json.RawMessage(arguments), json.RawMessage(schema), timeout
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				return c.callTool(ctx, svc, t, from)
			})
		},
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	fl.StringVar(&t.Name, "name", "", "the function (default: the last of the source)")
	fl.StringVar(&arguments, "args", "{}", "JSON `object` of arguments")
	fl.StringVar(&schema, "schema", "", "JSON `schema` of the function or of its arguments; TypeScript needs one")
	fl.StringVar(&from, "state", "", "`FILE` with the agent's state as JSON")
	fl.StringArrayVarP(&env, "env", "e", nil, "variable as `K=V`; K alone takes it from here")
	fl.StringArrayVar(&t.Python, "pip", nil, "`package` that the tool needs, as NAME or NAME==VERSION")
	fl.StringArrayVar(&t.Node, "npm", nil, "`package` that the tool needs, as NAME or NAME@VERSION")
	fl.DurationVar(&timeout, "timeout", 0, "wall time (default 3m)")
	return cmd
}

// callTool calls a tool and prints what came of it.
func (c *cli) callTool(ctx context.Context, svc brig.Service, t brig.Tool, state string) error {
	res, err := svc.RunTool(ctx, t)
	if err != nil {
		return err
	}
	for w, out := range map[io.Writer]brig.Output{c.stdout: res.Stdout, c.stderr: res.Stderr} {
		for _, part := range [][]byte{out.Head, out.Tail} {
			if _, err := w.Write(part); err != nil {
				return err
			}
		}
	}
	if res.Error == nil && state != "" && len(res.State) > 0 {
		if err := os.WriteFile(state, res.State, 0o600); err != nil {
			return err
		}
	}
	if res.Error != nil {
		c.code = max(1, res.ExitCode)
	}
	return c.answer(res, res.Text)
}
