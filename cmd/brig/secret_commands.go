package main

import (
	"context"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
)

// secretCommands are the commands of brig secret.
type secretCommands struct{ *cli }

func (c secretCommands) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "secret",
		Aliases: []string{"secrets"},
		Short:   "Manage secrets for sandboxes",
	}
	cmd.AddCommand(c.set(), c.list(), c.remove(), c.rotate())
	return cmd
}

func (c secretCommands) set() *cobra.Command {
	var (
		hosts, places []string
		allow         []string
		exclusive     bool
		plain         bool
		reveal, keep  bool
		env, file     string
	)
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Create or change a secret",
		Long: `Create a secret, or change its value and the properties that flags name. The value is
read from standard input, without the line break at its end; on a terminal the command
prompts for it and does not echo it. It cannot be an argument, because every user of a
machine can read the arguments of processes.

Without --host, the value is a variable in sandboxes that are created with the secret.
With --host, the secret is brokered: the sandbox has a placeholder, and the egress proxy
replaces it by the value in requests to those hosts. --reveal removes the hosts, so that
sandboxes see the value. A change that lets the value go further needs the value, so it
cannot be combined with --keep-value. Existing sandboxes keep what they were given.`,
		Example: `  brig secret set db-password < password.txt
  brig secret set github --host api.github.com --from-env GITHUB_TOKEN
  brig secret set github --keep-value --exclusive
  brig run --secret db-password=PGPASSWORD script.py`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			change := brig.SecretChange{Name: args[0], Hosts: hosts, Reveal: reveal}
			var err error
			switch {
			case !keep:
				change.Value, err = c.readValue(env, file)
			case env != "" || file != "":
				err = brig.Errorf(brig.InvalidArgument, "--keep-value cannot be combined with --from-env or --from-file").WithHint("leave out one of them")
			}
			if err != nil {
				return err
			}
			if reveal {
				if len(hosts) > 0 {
					return brig.Errorf(brig.InvalidArgument, "--reveal cannot be combined with --host").WithHint("leave out one of them")
				}
				change.Hosts = []string{}
			}
			for _, p := range places {
				change.Places = append(change.Places, brig.SecretPlace(p))
			}
			if cmd.Flags().Changed("allow") {
				change.Allow = slices.DeleteFunc(append([]string{}, allow...), func(a string) bool { return a == "" })
			}
			if cmd.Flags().Changed("exclusive") {
				change.Exclusive = &exclusive
			}
			if cmd.Flags().Changed("plain") {
				change.Plain = &plain
			}
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				out, err := svc.PutSecret(ctx, change)
				if err != nil {
					return err
				}
				return c.printJSONOrLine(out, out.Name+" version "+strconv.Itoa(out.Version))
			})
		},
	}
	fl := cmd.Flags()
	fl.StringArrayVar(&hosts, "host", nil, "broker the secret: send the value only to this `host`, for example api.example.com or *.example.com")
	fl.StringArrayVar(&places, "place", nil, "`place` in a request: header (default), query or body")
	fl.BoolVar(&exclusive, "exclusive", false, "reject requests to these hosts that may carry other credentials")
	fl.StringArrayVar(&allow, "allow", nil, "header `field` (X-Tenant), query parameter (?region) or user of basic credentials (user:NAME) that --exclusive allows; replaces the former ones")
	fl.BoolVar(&plain, "plain", false, "allow sending the value in plain HTTP")
	fl.BoolVar(&reveal, "reveal", false, "remove all hosts: sandboxes see the value")
	fl.BoolVar(&keep, "keep-value", false, "change only the properties that other flags name")
	fl.StringVar(&env, "from-env", "", "take the value from this environment `variable`")
	fl.StringVar(&file, "from-file", "", "take the value from this `file`, unchanged")
	return cmd
}

// readValue reads a value from a source that other users cannot see.
func (c secretCommands) readValue(env, file string) ([]byte, error) {
	switch {
	case env != "" && file != "":
		return nil, brig.Errorf(brig.InvalidArgument, "--from-env and --from-file cannot be combined").WithHint("leave out one of them")
	case env != "":
		v, ok := os.LookupEnv(env)
		if !ok {
			return nil, brig.InvalidField("--from-env", "the environment has no variable %q", env)
		}
		return []byte(v), nil
	case file != "":
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, unreadableError("--from-file", file, err)
		}
		return b, nil
	}
	if isTerminal(c.stdin) {
		value, err := promptOf(c.cli).readSecret("Value")
		return []byte(value), err
	}
	b, err := io.ReadAll(io.LimitReader(c.stdin, int64(brig.MaxSecret)+3))
	if err != nil {
		return nil, brig.Errorf(brig.InvalidArgument, "cannot read the value from standard input").Because(err)
	}
	return []byte(strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r")), nil
}

// printJSONOrLine prints v as JSON, or line as text.
func (c *cli) printJSONOrLine(v any, line string) error {
	if c.asJSON {
		return c.printJSON(v)
	}
	_, err := io.WriteString(c.stdout, sanitizeText(line)+"\n")
	return err
}

func (c secretCommands) list() *cobra.Command {
	return &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List secrets, without their values",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				all, err := svc.Secrets(ctx)
				if err != nil {
					return err
				}
				return list(c.cli, all, "NAME\tVERSION\tUPDATED\tHOSTS", func(s *brig.Secret) []string {
					hosts := strings.Join(s.Hosts, ",")
					if hosts == "" {
						hosts = "-"
					}
					return []string{s.Name, strconv.Itoa(s.Version), relativeTime(s.Updated), hosts}
				})
			})
		},
	}
}

func (c secretCommands) remove() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:     "rm NAME…",
		Aliases: []string{"remove"},
		Short:   "Remove secrets; sandboxes that use them cannot start commands",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := promptOf(c.cli).confirm(yes, "Remove the secrets %s?", strings.Join(args, ", ")); err != nil {
				return err
			}
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				for _, name := range args {
					if err := svc.RemoveSecret(ctx, name); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	addYes(cmd, &yes)
	return cmd
}

func (c secretCommands) rotate() *cobra.Command {
	return &cobra.Command{
		Use:   "rotate-key",
		Short: "Create a new master key, and encrypt all secrets with it",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				n, err := svc.RotateKey(ctx)
				if err != nil {
					return err
				}
				return c.printJSONOrLine(map[string]int{"secrets": n}, strconv.Itoa(n)+" secrets are encrypted with the new key")
			})
		},
	}
}

// parseSecretUses parses flags of the form NAME or NAME=VARIABLE.
func parseSecretUses(list []string) []brig.SecretUse {
	var out []brig.SecretUse
	for _, s := range list {
		name, env, _ := strings.Cut(s, "=")
		out = append(out, brig.SecretUse{Name: name, Env: env})
	}
	return out
}
