package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/client"
)

// sessionCommands are the commands for sessions of users.
type sessionCommands struct{ *cli }

func (c sessionCommands) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "session",
		Aliases: []string{"sessions"},
		Short:   "List and end browser sessions",
	}
	cmd.AddCommand(c.list(), c.end())
	return cmd
}

func (c sessionCommands) list() *cobra.Command {
	var tenant string
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List your browser sessions, or as an admin those of the tenant",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				all, err := svc.Sessions(ctx, tenant)
				if err != nil {
					return err
				}
				return list(c.cli, all, "ID\tNAME\tTENANT\tROLE\tBY\tCREATED\tLAST USED\tEXPIRES", func(s *brig.Session) []string {
					by := s.Actor.Key
					if p := s.Actor.Person; p != nil {
						by = p.Issuer
					}
					return []string{s.ID, s.Actor.Name, s.Actor.Tenant, s.Actor.Role.String(), by, relativeTime(s.Created), relativeTime(s.Used), relativeTime(s.Expires)}
				})
			})
		},
	}
	cmd.Flags().StringVar(&tenant, "tenant", "", "list those of this `tenant` (default: your own; * is all)")
	return cmd
}

func (c sessionCommands) end() *cobra.Command {
	return &cobra.Command{
		Use:     "rm ID…",
		Aliases: []string{"end", "revoke"},
		Short:   "End browser sessions and their connections",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				for _, id := range args {
					if err := svc.EndSession(ctx, id); err != nil {
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

func (c sessionCommands) whoami() *cobra.Command {
	return &cobra.Command{
		Use:   "whoami",
		Short: "Show who you are: the key, tenant, role and scopes",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				a := brig.ActorFrom(ctx) // without a server, the actor is the owner of the data folder
				if remote, ok := svc.(*client.Client); ok {
					who, err := remote.Whoami(ctx)
					if err != nil {
						return err
					}
					a = *who
				}
				if c.asJSON {
					return c.printJSON(a)
				}
				scopes := ""
				if len(a.Scopes) > 0 {
					scopes = ", scopes " + strings.Join(a.Scopes, ", ")
				}
				_, err := fmt.Fprintf(c.stdout, "%s, %s of %s%s\n", sanitizeText(a.Name), a.Role, sanitizeText(a.Tenant), sanitizeText(scopes))
				return err
			})
		},
	}
}
