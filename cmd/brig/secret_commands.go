package main

import (
	"context"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/brig-run/brig"
)

func (c *cli) secretCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "secret",
		Aliases: []string{"secrets"},
		Short:   "Keep values that sandboxes use and nobody sees",
	}
	cmd.AddCommand(c.secretSet(), c.secretList(), c.secretRemove(), c.secretRotate())
	return cmd
}

func (c *cli) secretSet() *cobra.Command {
	var (
		hosts, places []string
		exclusive     bool
		plain         bool
		reveal, keep  bool
		env, file     string
	)
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Make a secret, or change what the flags name",
		Long: `Make a secret, or change one: give it another value, and change what the flags
name. What they do not name stays as it is. The value is read from standard
input without the line break at its end; a terminal asks for it and does not show
it. There is no way to give it as an argument: everybody on a machine can read
those.

Without --host the value is a variable of sandboxes that are created with the
secret. With it the value never enters one: what runs there has a placeholder,
for which the value is put into requests to those hosts. --reveal takes the hosts
from a secret, so that sandboxes see its value.`,
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
				change.Value, err = c.secretValue(env, file)
			case env != "" || file != "":
				err = brig.Errorf(brig.InvalidArgument, "--keep-value keeps the value: leave out --from-env and --from-file")
			}
			if err != nil {
				return err
			}
			if reveal {
				if len(hosts) > 0 {
					return brig.Errorf(brig.InvalidArgument, "--reveal takes all hosts from the secret: leave out --host")
				}
				change.Hosts = []string{}
			}
			for _, p := range places {
				change.Places = append(change.Places, brig.SecretPlace(p))
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
				return c.answer(out, out.Name+" version "+strconv.Itoa(out.Version))
			})
		},
	}
	fl := cmd.Flags()
	fl.StringArrayVar(&hosts, "host", nil, "a `host` that the value may be sent to, for example api.example.com or *.example.com")
	fl.StringArrayVar(&places, "place", nil, "where in a request: header (default), query or body")
	fl.BoolVar(&exclusive, "exclusive", false, "refuse requests to these hosts with other credentials")
	fl.BoolVar(&plain, "plain", false, "let the value go to these hosts in clear HTTP, too")
	fl.BoolVar(&reveal, "reveal", false, "take all hosts from the secret: sandboxes see its value")
	fl.BoolVar(&keep, "keep-value", false, "keep the value, and change only what other flags name")
	fl.StringVar(&env, "from-env", "", "take the value from the `variable`")
	fl.StringVar(&file, "from-file", "", "take the value from the `file`, as it is")
	return cmd
}

// secretValue reads a value from where nobody else can see it.
func (c *cli) secretValue(env, file string) ([]byte, error) {
	switch {
	case env != "" && file != "":
		return nil, brig.Errorf(brig.InvalidArgument, "give one of --from-env and --from-file")
	case env != "":
		v, ok := os.LookupEnv(env)
		if !ok {
			return nil, brig.InvalidField("--from-env", "there is no variable %q", env)
		}
		return []byte(v), nil
	case file != "":
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, brig.InvalidField("--from-file", "%q cannot be read", file).Because(err)
		}
		return b, nil
	}
	if f, ok := c.stdin.(*os.File); ok && isTerminal(f) {
		_, _ = io.WriteString(c.stderr, "Value (it is not shown): ")
		b, err := term.ReadPassword(int(f.Fd()))
		_, _ = io.WriteString(c.stderr, "\n")
		if err != nil {
			return nil, brig.Errorf(brig.InvalidArgument, "the value cannot be read from the terminal").Because(err)
		}
		return b, nil
	}
	b, err := io.ReadAll(io.LimitReader(c.stdin, int64(brig.MaxSecret)+3))
	if err != nil {
		return nil, brig.Errorf(brig.InvalidArgument, "the value cannot be read from standard input").Because(err)
	}
	return []byte(strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r")), nil
}

// answer prints v as JSON, or a short line about it.
func (c *cli) answer(v any, line string) error {
	if c.asJSON {
		return c.printJSON(v)
	}
	_, err := io.WriteString(c.stdout, clean(line)+"\n")
	return err
}

func (c *cli) secretList() *cobra.Command {
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
				return list(c, all, "NAME\tVERSION\tUPDATED\tHOSTS", func(s *brig.Secret) []string {
					hosts := strings.Join(s.Hosts, ",")
					if hosts == "" {
						hosts = "-"
					}
					return []string{s.Name, strconv.Itoa(s.Version), ago(s.Updated), hosts}
				})
			})
		},
	}
}

func (c *cli) secretRemove() *cobra.Command {
	return &cobra.Command{
		Use:     "rm NAME…",
		Aliases: []string{"remove"},
		Short:   "Forget secrets; sandboxes that have them start no more commands",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
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
}

func (c *cli) secretRotate() *cobra.Command {
	return &cobra.Command{
		Use:   "rotate-key",
		Short: "Make a new key and encrypt all secrets under it",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				n, err := svc.RotateKey(ctx)
				if err != nil {
					return err
				}
				return c.answer(map[string]int{"secrets": n}, strconv.Itoa(n)+" secrets are encrypted with the new key")
			})
		},
	}
}

// secretUses reads flags of the form NAME or NAME=VARIABLE.
func secretUses(list []string) []brig.SecretUse {
	var out []brig.SecretUse
	for _, s := range list {
		name, env, _ := strings.Cut(s, "=")
		out = append(out, brig.SecretUse{Name: name, Env: env})
	}
	return out
}
