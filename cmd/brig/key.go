package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
)

func (c *cli) keyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "key",
		Aliases: []string{"keys"},
		Short:   "Create, list and revoke API keys, and make grants",
	}
	cmd.AddCommand(c.keyCreate(), c.keyList(), c.keyRevoke(), c.keyGrant())
	return cmd
}

func (c *cli) keyCreate() *cobra.Command {
	var (
		spec       brig.KeySpec
		role, kind string
	)
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Make a key; it is shown once",
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
				fmt.Fprintf(c.stderr, "id: %s; this is the only time that the key is shown\n", k.ID)
				_, err = fmt.Fprintln(c.stdout, k.Secret)
				return err
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&role, "role", "member", "viewer, member, admin or operator")
	f.StringVar(&spec.Tenant, "tenant", "", "whose `tenant` it is (default: your own)")
	f.StringSliceVar(&spec.Scopes, "scope", nil, "beginnings of operations' `names`, for example file.read or sandbox.")
	f.DurationVar(&spec.TTL, "ttl", 0, "how long it is good for (default: until it is revoked)")
	f.StringVar(&kind, "kind", "brig", "brig, or e2b for E2B's clients")
	return cmd
}

func (c *cli) keyList() *cobra.Command {
	var tenant string
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List keys",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				keys, err := svc.Keys(ctx, tenant)
				if err != nil {
					return err
				}
				return list(c, keys, "ID\tNAME\tTENANT\tROLE\tSCOPES\tPREFIX\tCREATED\tEXPIRES\tLAST USED", func(k *brig.Key) []string {
					scopes := strings.Join(k.Actor.Scopes, ",")
					if scopes == "" {
						scopes = "-"
					}
					return []string{k.ID, k.Actor.Name, k.Actor.Tenant, k.Actor.Role.String(), scopes, k.Prefix,
						ago(k.Created), ago(k.Actor.Expires), ago(k.Used)}
				})
			})
		},
	}
	cmd.Flags().StringVar(&tenant, "tenant", "", "whose `tenant` (default: your own; * is all)")
	return cmd
}

func (c *cli) keyRevoke() *cobra.Command {
	return &cobra.Command{
		Use:     "revoke ID…",
		Aliases: []string{"rm"},
		Short:   "End keys, their grants, and what goes on with them",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
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
}

func (c *cli) keyGrant() *cobra.Command {
	var (
		spec brig.GrantSpec
		role string
	)
	cmd := &cobra.Command{
		Use:     "grant",
		Short:   "Make a token of a part of your own rights, to be handed on",
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
	f.StringSliceVar(&spec.Scopes, "scope", nil, "beginnings of operations' `names` (default: your own)")
	f.StringSliceVar(&spec.Sandboxes, "sandbox", nil, "`names` of the only sandboxes that it is good for")
	f.DurationVar(&spec.TTL, "ttl", time.Hour, "how long it is good for")
	return cmd
}
