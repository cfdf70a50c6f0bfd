package main

import (
	"context"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
)

// webhookCommands are the commands of brig webhook, and brig events.
type webhookCommands struct{ *cli }

func (c webhookCommands) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "webhook",
		Aliases: []string{"webhooks"},
		Short:   "Manage receivers of lifecycle events",
		Long: `Manage webhooks. The server sends each change of a sandbox's state to a webhook as a signed
POST request, in order and at least once, and tries again for a day.`,
		Example: `  brig webhook create ci https://hooks.example/brig --event created --event ended
  brig webhook deliveries ID`,
	}
	cmd.AddCommand(c.create(), c.list(), c.deliveries(), c.replay(), c.remove())
	return cmd
}

func (c webhookCommands) create() *cobra.Command {
	var types []string
	var labels []string
	cmd := &cobra.Command{
		Use:   "create NAME URL",
		Short: "Create a webhook",
		Long: `Create a webhook. The secret, which signs the requests, is asked for on a terminal, and otherwise
read from the standard input. It has 16 to 1024 bytes.`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			w := brig.Webhook{Name: args[0], URL: args[1], Enabled: true}
			for _, t := range types {
				w.Types = append(w.Types, brig.LifecycleType(t))
			}
			var err error
			if w.Labels, err = parsePairs("--label", labels, false); err != nil {
				return err
			}
			if w.Secret, err = c.readSecret(); err != nil {
				return err
			}
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				made, err := svc.CreateWebhook(ctx, w)
				if err != nil {
					return err
				}
				return c.printJSONOrLine(made, made.ID)
			})
		},
	}
	cmd.Flags().StringArrayVar(&types, "event", nil, "`type` of events: created, updated, paused, resumed, copied or ended (default all)")
	cmd.Flags().StringArrayVar(&labels, "label", nil, "only events of sandboxes with this label, as `KEY=VALUE`")
	return cmd
}

// readSecret asks for the secret on a terminal, and reads it from the standard input otherwise.
func (c webhookCommands) readSecret() (string, error) {
	secret, err := promptOf(c.cli).readSecret("Secret")
	if err != nil || secret != "" {
		return secret, err
	}
	b, err := io.ReadAll(io.LimitReader(c.stdin, 4*brig.KiB))
	if err != nil {
		return "", brig.Errorf(brig.InvalidArgument, "cannot read the secret from the standard input").Because(err)
	}
	return strings.TrimRight(string(b), "\r\n"), nil
}

func typesText(types []brig.LifecycleType) string {
	if len(types) == 0 {
		return "all"
	}
	var out []string
	for _, t := range types {
		out = append(out, string(t))
	}
	return strings.Join(out, ",")
}

func (c webhookCommands) list() *cobra.Command {
	return &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List webhooks",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				all, err := svc.Webhooks(ctx)
				if err != nil {
					return err
				}
				return list(c.cli, all, "ID\tNAME\tSTATE\tEVENTS\tURL", func(w *brig.Webhook) []string {
					state := "enabled"
					switch {
					case !w.Enabled:
						state = "disabled"
					case !w.FailingSince.IsZero():
						state = "failing since " + relativeTime(w.FailingSince)
					}
					return []string{w.ID, sanitizeCell(w.Name), state, typesText(w.Types), sanitizeCell(w.URL)}
				})
			})
		},
	}
}

func (c webhookCommands) deliveries() *cobra.Command {
	return &cobra.Command{
		Use:   "deliveries ID",
		Short: "List the newest deliveries of a webhook",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				all, err := svc.Deliveries(ctx, args[0])
				if err != nil {
					return err
				}
				return list(c.cli, all, "AT\tTYPE\tSANDBOX\tATTEMPTS\tSTATUS\tRESULT", func(d *brig.Delivery) []string {
					result := "delivered"
					if !d.Delivered {
						result = sanitizeCell(d.Error)
					}
					return []string{relativeTime(d.At), string(d.Type), string(d.Sandbox), strconv.Itoa(d.Attempts), strconv.Itoa(d.Status), result}
				})
			})
		},
	}
}

func (c webhookCommands) replay() *cobra.Command {
	var since time.Duration
	cmd := &cobra.Command{
		Use:   "replay ID",
		Short: "Deliver events again",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				w, err := svc.ReplayWebhook(ctx, args[0], time.Now().Add(-since))
				if err != nil {
					return err
				}
				return c.printJSONOrLine(w, w.ID)
			})
		},
	}
	cmd.Flags().DurationVar(&since, "since", time.Hour, "age of the oldest event")
	return cmd
}

func (c webhookCommands) remove() *cobra.Command {
	return &cobra.Command{
		Use:     "rm ID…",
		Aliases: []string{"remove"},
		Short:   "Remove webhooks",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				for _, id := range args {
					if err := svc.RemoveWebhook(ctx, id); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
}

// events returns the command that lists lifecycle events.
func (c webhookCommands) events() *cobra.Command {
	var q brig.LifecycleQuery
	var types []string
	cmd := &cobra.Command{
		Use:   "events [SANDBOX]",
		Short: "List changes of the state of sandboxes, newest first",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			q.Sandbox = strings.Join(args, "")
			for _, t := range types {
				q.Types = append(q.Types, brig.LifecycleType(t))
			}
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				all, err := svc.Lifecycle(ctx, q)
				if err != nil {
					return err
				}
				return list(c.cli, all, "AT\tTYPE\tNAME\tSANDBOX\tREASON", func(e brig.LifecycleEvent) []string {
					return []string{relativeTime(e.At), string(e.Type), sanitizeCell(e.Name), string(e.Sandbox), e.Reason}
				})
			})
		},
	}
	cmd.Flags().StringArrayVar(&types, "type", nil, "only this `type`: created, updated, paused, resumed, copied or ended")
	cmd.Flags().IntVar(&q.Limit, "limit", 20, "number of events, up to 100")
	cmd.Flags().BoolVar(&q.OldestFirst, "oldest-first", false, "reverse the order")
	return cmd
}
