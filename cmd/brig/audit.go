package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/audit"
)

// auditCommands are the commands of brig audit.
type auditCommands struct{ *cli }

func (c auditCommands) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Export and verify the audit log",
	}
	cmd.AddCommand(c.export(), c.verify(), c.replay(), c.head())
	return cmd
}

// parseTime parses a flag value that is either an RFC 3339 time or a duration before now.
func parseTime(flag, s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(s); err == nil {
		return time.Now().Add(-d), nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return t, brig.InvalidField(flag, "%q is neither a time nor a duration", brig.Clip(s, 40)).WithHint("for example 2006-01-02T15:04:05Z, or 24h for the last 24 hours")
	}
	return t, nil
}

func (c auditCommands) export() *cobra.Command {
	var since, until, sandbox, format string
	var labels []string
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write the audit log to standard output",
		Long: `Write the tenant's audit log to standard output, oldest first: as JSON lines that
brig audit verify can check, or in the class API Activity of OCSF. A filtered export
proves only the records that it contains.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q := brig.AuditQuery{Sandbox: sandbox, Limit: 1000}
			var err error
			if q.Since, err = parseTime("--since", since); err != nil {
				return err
			}
			if q.Until, err = parseTime("--until", until); err != nil {
				return err
			}
			if q.Labels, err = parsePairs("--label", labels, false); err != nil {
				return err
			}
			if format != "jsonl" && format != "ocsf" {
				return brig.InvalidField("--format", "%q is not a format", brig.Clip(format, 40)).WithHint("use jsonl or ocsf")
			}
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				if format == "ocsf" {
					return exportOCSF(ctx, svc, q, c.stdout)
				}
				return exportLines(ctx, svc, q, c.stdout)
			})
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&since, "since", "", "only records since this `time`: RFC 3339, or a duration such as 24h")
	fl.StringVar(&until, "until", "", "only records before this `time`")
	fl.StringVar(&sandbox, "sandbox", "", "only records of this sandbox, by `id` or name")
	fl.StringArrayVar(&labels, "label", nil, "only records of sandboxes with this label, as `KEY=VALUE`")
	fl.StringVar(&format, "format", "jsonl", "jsonl or ocsf")
	return cmd
}

// forEachPage calls f for every page of the audit log that q selects.
func forEachPage(ctx context.Context, svc brig.Service, q brig.AuditQuery, f func(*brig.AuditPage) error) error {
	for {
		p, err := svc.Audit(ctx, q)
		if err == nil {
			err = f(p)
		}
		if err != nil || p.Next == 0 {
			return err
		}
		q.After = p.Next
	}
}

func exportOCSF(ctx context.Context, svc brig.Service, q brig.AuditQuery, to io.Writer) error {
	e := json.NewEncoder(to)
	e.SetEscapeHTML(false)
	return forEachPage(ctx, svc, q, func(p *brig.AuditPage) error {
		for _, l := range p.Lines {
			if err := e.Encode(audit.FromLineOCSF(l)); err != nil {
				return err
			}
		}
		return nil
	})
}

func exportLines(ctx context.Context, svc brig.Service, q brig.AuditQuery, to io.Writer) error {
	var w *audit.Writer
	var head brig.AuditHead
	err := forEachPage(ctx, svc, q, func(p *brig.AuditPage) (err error) {
		if w == nil {
			begins := int64(1)
			if len(p.Lines) > 0 && !q.IsPartial() {
				begins = p.Lines[0].Seq
			}
			if w, err = audit.NewWriter(to, q, begins); err != nil {
				return err
			}
		}
		for _, l := range p.Lines {
			if err := w.WriteLine(l); err != nil {
				return err
			}
		}
		head = p.Head
		return nil
	})
	if err != nil {
		return err
	}
	return w.WriteEnd(head)
}

func (c auditCommands) replay() *cobra.Command {
	return &cobra.Command{
		Use:   "replay ID",
		Short: "Show the history of a sandbox from the audit log",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				var all []brig.AuditLine
				err := forEachPage(ctx, svc, brig.AuditQuery{Sandbox: args[0], Limit: 1000}, func(p *brig.AuditPage) error {
					all = append(all, p.Lines...)
					return nil
				})
				if err != nil {
					return err
				}
				if len(all) == 0 {
					return brig.Errorf(brig.NotFound, "the audit log has no sandbox %q", args[0]).WithHint("give its id or its name")
				}
				if c.asJSON {
					return c.printJSON(&brig.AuditPage{Lines: all})
				}
				return c.printTimeline(all)
			})
		},
	}
}

// printTimeline prints audit records as a table, grouped by sandbox.
func (c auditCommands) printTimeline(all []brig.AuditLine) error {
	var rows [][]string
	id := brig.ID("")
	for _, l := range all {
		if l.Sandbox != id && id != "" {
			rows = append(rows, []string{"", "", "", ""}) // separates sandboxes that had the same name
		}
		if id != l.Sandbox {
			id = l.Sandbox
			rows = append(rows, []string{l.At.Format(time.RFC3339), "sandbox " + string(id), "tenant " + l.Tenant, ""})
		}
		what := map[brig.Phase]string{brig.Intent: "asked: ", brig.Finish: "done: ", brig.Observed: "", brig.Refused: "refused: "}[l.Phase] + l.Op
		if l.Kind != "" && l.Phase != brig.Refused {
			what = "failed: " + l.Op
		}
		var more []string
		if l.Kind != "" {
			more = append(more, string(l.Kind))
		}
		for _, k := range slices.Sorted(maps.Keys(l.Detail)) {
			if k != brig.DetailName && (!strings.HasPrefix(k, brig.DetailLabel) || l.Phase == brig.Intent) {
				more = append(more, k+"="+strings.ReplaceAll(l.Detail[k], "\n", "⏎"))
			}
		}
		who := l.Actor
		if who == "" {
			who = "-"
		}
		rows = append(rows, []string{l.At.Format("15:04:05.000"), what, who, strings.Join(more, "  ")})
	}
	return c.printTable("TIME\tWHAT\tWHO\tDETAIL", rows)
}

func (c auditCommands) head() *cobra.Command {
	return &cobra.Command{
		Use:   "head",
		Short: "Print the signed head of the audit log",
		Long: `Print the signed head of the audit log: the number and the hash of its last record. Keep
it elsewhere to detect later that records at the end were removed.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				p, err := svc.Audit(ctx, brig.AuditQuery{Limit: 1})
				if err != nil {
					return err
				}
				return json.NewEncoder(c.stdout).Encode(audit.FromHead(p.Head))
			})
		},
	}
}

// newAuditLogError returns the error for a log that fails verification.
func newAuditLogError(tenant string, err error) error {
	bad, ok := errors.AsType[*audit.InvalidRecord](err)
	if !ok {
		return err
	}
	where := ""
	if tenant != "" {
		where = fmt.Sprintf(" of the log of %q", tenant)
	}
	return brig.Errorf(brig.FailedPrecondition, "record %d%s: %s", bad.Seq, where, bad.Reason).
		WithHint("the records before it are unchanged; compare the others with an older export")
}
