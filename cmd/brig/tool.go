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

// toolCommands are the commands of brig tool.
type toolCommands struct{ *cli }

func (c toolCommands) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "tool",
		Aliases: []string{"tools"},
		Short:   "Run agent tools",
	}
	cmd.AddCommand(c.run())
	return cmd
}

func (c toolCommands) run() *cobra.Command {
	var (
		t                       brig.Tool
		arguments, schema, from string
		env                     []string
		timeout                 time.Duration
	)
	cmd := &cobra.Command{
		Use:   "run FILE",
		Short: "Call a function of a source file",
		Long: `Call a function of a source file in a persistent sandbox, which later calls reuse, with
the tenant's setup, variables and packages, as for Letta clients. The function's result is
printed last. With --state, the agent's state after the call is written back to that file.`,
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
			if t.Env, err = parsePairs("--env", env, true); err != nil {
				return err
			}
			t.Arguments, t.Schema, t.Timeout = json.RawMessage(arguments), json.RawMessage(schema), timeout
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				return c.call(ctx, svc, t, from)
			})
		},
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	fl.StringVar(&t.Name, "name", "", "`name` of the function (default: the last in the file)")
	fl.StringVar(&arguments, "args", "{}", "JSON `object` of arguments")
	fl.StringVar(&schema, "schema", "", "JSON `schema` of the function or of its arguments; required for TypeScript")
	fl.StringVar(&from, "state", "", "`file` with the agent's state as JSON")
	fl.StringArrayVarP(&env, "env", "e", nil, "set a variable, as `NAME=VALUE`; NAME alone copies it from this environment")
	fl.StringArrayVar(&t.Python, "pip", nil, "install this Python `package`, as NAME or NAME==VERSION")
	fl.StringArrayVar(&t.Node, "npm", nil, "install this npm `package`, as NAME or NAME@VERSION")
	fl.DurationVar(&timeout, "timeout", 0, "time limit (default 3m)")
	return cmd
}

// call calls a tool and prints the result.
func (c toolCommands) call(ctx context.Context, svc brig.Service, t brig.Tool, state string) error {
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
	return c.printJSONOrLine(res, res.Text)
}
