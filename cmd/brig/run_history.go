package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
)

// history returns the commands about finished runs.
func (c observeCommands) history() *cobra.Command {
	cmd := &cobra.Command{Use: "runs", Short: "Look at finished runs"}
	cmd.AddCommand(c.listRuns(), c.getRun())
	return cmd
}

func (c observeCommands) listRuns() *cobra.Command {
	var statuses []string
	o := brig.RunOptions{}
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List finished runs, the last one to end first",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, s := range statuses {
				if !slices.Contains(brig.OutcomeStatuses, brig.RunStatus(s)) {
					return brig.InvalidField("--status", "%q is not a status of a run", brig.Clip(s, 40)).WithHint("use one of: %s", joinWords(brig.OutcomeStatuses))
				}
				o.Statuses = append(o.Statuses, brig.RunStatus(s))
			}
			if o.Limit < 1 || o.Limit > 1000 {
				return brig.InvalidField("--limit", "%d is out of bounds", o.Limit).WithHint("give 1 to 1000")
			}
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				page, err := listRuns(ctx, svc, o)
				if err != nil {
					return err
				}
				return listOf(c.cli, page, page.Runs, "RUN\tSTATUS\tEXIT\tSTARTED\tTOOK\tERROR", runRow)
			})
		},
	}
	cmd.Flags().StringArrayVar(&statuses, "status", nil, "only runs with this `status`: "+joinWords(brig.OutcomeStatuses))
	cmd.Flags().IntVar(&o.Limit, "limit", 100, "list at most this `number` of runs")
	return cmd
}

// listRuns reads as many pages as needed for o.Limit runs, and returns them as one page.
func listRuns(ctx context.Context, svc brig.Service, o brig.RunOptions) (*brig.RunPage, error) {
	out := &brig.RunPage{}
	for {
		page, err := svc.Runs(ctx, o)
		if err != nil {
			return nil, err
		}
		out.Runs, out.Next = append(out.Runs, page.Runs...), page.Next
		o.Limit, o.Cursor = o.Limit-len(page.Runs), page.Next
		if o.Limit == 0 || page.Next == "" {
			return out, nil
		}
	}
}

// runRow returns the row of a run in a table.
func runRow(r *brig.RunSummary) []string {
	reason := "-"
	if r.Error != nil {
		reason = sanitizeCell(brig.Clip(r.Error.Name+": "+r.Error.Message, 60))
	}
	return []string{r.Sandbox, string(r.Status), fmt.Sprint(r.ExitCode), relativeTime(r.Started), r.Duration.Round(time.Millisecond).String(), reason}
}

func (c observeCommands) getRun() *cobra.Command {
	return &cobra.Command{
		Use:   "get RUN",
		Short: "Show the result of a run as JSON",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				o, err := svc.GetRun(ctx, args[0])
				if err != nil {
					return err
				}
				return c.printJSON(o)
			})
		},
	}
}
