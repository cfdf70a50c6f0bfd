package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
)

// keyCommands creates the commands of brig key.
type keyCommands struct{ *cli }

func (c keyCommands) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "key",
		Aliases: []string{"keys"},
		Short:   "Manage API keys and grants",
	}
	cmd.AddCommand(c.create(), c.list(), c.revoke(), c.rotate(), c.grant())
	return cmd
}

func (c keyCommands) create() *cobra.Command {
	var (
		spec       brig.KeySpec
		role, kind string
	)
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Create an API key, and print it once",
		Example: `  brig key create ci --role member --scope run --ttl 720h
  brig key create agents --tenant acme --role member --kind e2b`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			spec.Name, spec.Kind = args[0], brig.KeyKind(kind)
			if spec.Role, err = brig.ParseRole(role); err != nil {
				return err
			}
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				k, err := svc.CreateKey(ctx, spec)
				if err != nil {
					return err
				}
				if c.asJSON {
					return c.printJSON(k)
				}
				fmt.Fprintf(c.stderr, "id: %s (save the key now: it is not shown again)\n", k.ID)
				_, err = fmt.Fprintln(c.stdout, k.Secret)
				return err
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&role, "role", "member", "viewer, member, admin or operator")
	f.StringVar(&spec.Tenant, "tenant", "", "create the key for this `tenant` (default: your own)")
	f.StringSliceVar(&spec.Scopes, "scope", nil, "restrict the key to operations whose `names` begin with this, for example file.read or sandbox.")
	f.DurationVar(&spec.TTL, "ttl", 0, "how long the key is valid (default: until it is revoked)")
	f.StringVar(&kind, "kind", "brig", "brig, or e2b for E2B clients")
	return cmd
}

func (c keyCommands) list() *cobra.Command {
	var tenant string
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List API keys",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				keys, err := svc.Keys(ctx, tenant)
				if err != nil {
					return err
				}
				return list(c.cli, keys, "ID\tNAME\tTENANT\tROLE\tSCOPES\tPREFIX\tCREATED\tEXPIRES\tLAST USED", func(k *brig.Key) []string {
					scopes := strings.Join(k.Actor.Scopes, ",")
					if scopes == "" {
						scopes = "-"
					}
					return []string{k.ID, k.Actor.Name, k.Actor.Tenant, k.Actor.Role.String(), scopes, k.Prefix,
						relativeTime(k.Created), relativeTime(k.Actor.Expires), relativeTime(k.Used)}
				})
			})
		},
	}
	cmd.Flags().StringVar(&tenant, "tenant", "", "list those of this `tenant` (default: your own; * is all)")
	return cmd
}

func (c keyCommands) revoke() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:     "revoke ID…",
		Aliases: []string{"rm"},
		Short:   "Revoke API keys and their grants, and end their connections",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := promptOf(c.cli).confirm(yes, "Revoke the keys %s?", strings.Join(args, ", ")); err != nil {
				return err
			}
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				for _, id := range args {
					if err := svc.RevokeKey(ctx, id); err != nil {
						return err
					}
					if !c.asJSON {
						fmt.Fprintln(c.stdout, id)
					}
				}
				return nil
			})
		},
	}
	addYes(cmd, &yes)
	return cmd
}

func (c keyCommands) grant() *cobra.Command {
	var (
		spec brig.GrantSpec
		role string
	)
	cmd := &cobra.Command{
		Use:     "grant",
		Short:   "Create a token with a part of your own rights",
		Example: "  brig key grant --role viewer --sandbox one --ttl 10m",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if role != "" {
				if spec.Role, err = brig.ParseRole(role); err != nil {
					return err
				}
			}
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				g, err := svc.CreateGrant(ctx, spec)
				if err != nil {
					return err
				}
				if c.asJSON {
					return c.printJSON(g)
				}
				_, err = fmt.Fprintln(c.stdout, g.Secret)
				return err
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&role, "role", "", "viewer, member, admin or operator (default: your own)")
	f.StringSliceVar(&spec.Scopes, "scope", nil, "restrict the token to operations whose `names` begin with this (default: your own scopes)")
	f.StringSliceVar(&spec.Sandboxes, "sandbox", nil, "restrict the token to the sandboxes with these `names`")
	f.DurationVar(&spec.TTL, "ttl", time.Hour, "how long the token is valid")
	return cmd
}
