package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
)

// sandboxCommands creates the subcommands of brig sandbox that create, list and end sandboxes.
type sandboxCommands struct{ *cli }

func (c sandboxCommands) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "sandbox",
		Aliases: []string{"sb", "sandboxes"},
		Short:   "Create and use persistent sandboxes",
	}
	cmd.AddCommand(c.create(), c.list(), c.get(), c.logs(), c.extend(), c.attest(), c.stop(),
		c.pause(),
		c.call("resume", "Resume a paused sandbox; every use of it does that too", brig.Service.Resume),
		c.fork(),
		c.call("kill", "Kill sandboxes; logs and exit code stay", brig.Service.Kill),
		c.remove())
	cmd.AddCommand(processCommands(c).commands()...)
	cmd.AddCommand(contextCommands(c).commands()...)
	cmd.AddCommand(networkCommands(c).commands()...)
	cmd.AddCommand(fileCommands(c).copy())
	return cmd
}

func (c sandboxCommands) create() *cobra.Command {
	var f runFlags
	var ttl, freeze, pauseAfter time.Duration
	var fixed, entrypoint, pausable, pauseAtEnd, pauseFiles bool
	var template string
	cmd := &cobra.Command{
		Use:   "create [NAME] [flags] [-- CMD ARG…]",
		Short: "Create a persistent sandbox",
		Long: `Create a sandbox that lives until its lease ends or it is removed. Each use renews the
lease, unless --fixed-lease is given. A command after -- becomes its main program, and
the sandbox stops when that ends.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			spec := brig.Spec{Image: f.image, Template: template, Entrypoint: entrypoint, TTL: ttl, FixedLease: fixed, FreezeAfter: freeze, Pausable: pausable, PauseAtEnd: pauseAtEnd, PauseAfter: pauseAfter, PauseFilesOnly: pauseFiles, Secrets: parseSecretUses(f.secrets)}
			if template != "" && !cmd.Flags().Changed("image") {
				spec.Image = ""
			}
			names := args
			if dash := cmd.ArgsLenAtDash(); dash >= 0 {
				names = args[:dash]
				if len(args) > dash {
					spec.Command = &brig.Command{Argv: args[dash:], User: f.user, Timeout: f.timeout}
				}
			}
			switch len(names) {
			case 0:
			case 1:
				spec.Name = names[0]
			default:
				return brig.Errorf(brig.InvalidArgument, "too many names: %q", names[1]).WithHint("give one name; a command follows --")
			}
			var err error
			if spec.Limits, err = f.limits(); err != nil {
				return err
			}
			if spec.Egress, err = f.egress.egress(); err != nil {
				return err
			}
			if spec.Workspace, err = f.workspace.use(); err != nil {
				return err
			}
			if spec.Volumes, err = parseVolumes(f.volumes); err != nil {
				return err
			}
			spec.Placement = f.place.placement()
			if spec.Require, err = parseRequirement(f.require); err != nil {
				return err
			}
			if spec.Env, err = parsePairs("--env", f.env, true); err != nil {
				return err
			}
			if spec.Labels, err = parsePairs("--label", f.labels, false); err != nil {
				return err
			}
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				s, err := svc.Create(ctx, spec)
				if err != nil {
					return err
				}
				return c.showSandbox(s, s.Spec.Name)
			})
		},
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	fl.StringVar(&f.image, "image", brig.HostImage, "image, by name or digest")
	fl.StringVar(&template, "template", "", "create the sandbox from this `template` instead of an image")
	fl.BoolVar(&entrypoint, "entrypoint", false, "run the image's entrypoint as main program, with the command as its arguments")
	fl.DurationVar(&ttl, "ttl", 0, "lease: how long it lives after its last use (default 5m)")
	fl.BoolVar(&fixed, "fixed-lease", false, "do not renew the lease when the sandbox is used")
	fl.DurationVar(&freeze, "freeze-after", 0, "freeze it after this time without use (default never)")
	fl.BoolVar(&pausable, "pausable", false, "it can be paused while processes run in it, and not only contexts")
	fl.DurationVar(&pauseAfter, "pause-after", 0, "pause it after this time without use, less than --ttl (default never)")
	fl.BoolVar(&pauseAtEnd, "pause-at-end", false, "pause it at the end of its lease, instead of ending it")
	fl.BoolVar(&pauseFiles, "pause-files-only", false, "--pause-after and --pause-at-end save only the files, as pause --files-only does")
	f.addLimits(cmd)
	f.egress.add(cmd)
	f.workspace.add(cmd)
	addVolumes(cmd, &f.volumes)
	addRequire(cmd, &f.require)
	f.place.add(cmd)
	fl.StringArrayVarP(&f.env, "env", "e", nil, "set a variable, as `NAME=VALUE`; NAME alone copies it from this environment")
	fl.StringArrayVar(&f.secrets, "secret", nil, "pass a secret, as `NAME` or NAME=VARIABLE")
	fl.StringArrayVar(&f.labels, "label", nil, "add a label, as `KEY=VALUE`")
	fl.StringVar(&f.user, "user", "", "run the command as user (default) or root")
	fl.DurationVar(&f.timeout, "timeout", 0, "time limit of the command (default: the lease)")
	return cmd
}

// showSandbox prints a sandbox as JSON, or a short line about it.
func (c sandboxCommands) showSandbox(s *brig.Sandbox, line string) error {
	if c.asJSON {
		return c.printJSON(s)
	}
	_, err := fmt.Fprintln(c.stdout, line)
	return err
}

func (c sandboxCommands) list() *cobra.Command {
	var (
		f     sandboxFilter
		depth int
		watch bool
	)
	cmd := &cobra.Command{
		Use:     "ls [NAME [PATH]]",
		Aliases: []string{"list"},
		Short:   "List sandboxes, newest first, or the files of one",
		Example: `  brig sandbox ls --label team=a --state running
  brig sandbox ls --format '{{.name}} {{.state}}'
  brig sandbox ls one /workspace --depth 2`,
		Args: cobra.MaximumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fileCommands(c).list(cmd, args, depth)
			}
			o, err := f.options()
			if err != nil {
				return err
			}
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				if watch {
					return printWhenChanged(ctx, c.cli, func() error { return sandboxes{c, svc}.list(ctx, o) })
				}
				return sandboxes{c, svc}.list(ctx, o)
			})
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "print the list again whenever it changes, until interrupted")
	cmd.Flags().IntVar(&depth, "depth", 1, "list files down to this `depth`")
	return cmd
}

// sandboxFilter are the flags that select sandboxes.
type sandboxFilter struct{ labels, states []string }

func (f *sandboxFilter) add(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.labels, "label", nil, "only sandboxes with this label, as `KEY=VALUE`")
	cmd.Flags().StringArrayVar(&f.states, "state", nil, "only sandboxes in this `state`: "+joinWords(brig.States))
}

func (f *sandboxFilter) options() (brig.ListOptions, error) {
	o := brig.ListOptions{Limit: 1000}
	var err error
	if o.Labels, err = parsePairs("--label", f.labels, false); err != nil {
		return o, err
	}
	for _, s := range f.states {
		if !slices.Contains(brig.States, brig.State(s)) {
			return o, brig.InvalidField("--state", "%q is not a state", brig.Clip(s, 40)).WithHint("use one of: %s", joinWords(brig.States))
		}
		o.States = append(o.States, brig.State(s))
	}
	return o, nil
}

// joinWords returns the words separated by commas.
func joinWords[T ~string](words []T) string {
	var out []string
	for _, w := range words {
		out = append(out, string(w))
	}
	return strings.Join(out, ", ")
}

// listAllSandboxes returns all pages of a list as one page.
func listAllSandboxes(ctx context.Context, svc brig.Service, o brig.ListOptions) (*brig.Page, error) {
	all := &brig.Page{}
	for {
		p, err := svc.List(ctx, o)
		if err != nil {
			return nil, err
		}
		all.Sandboxes = append(all.Sandboxes, p.Sandboxes...)
		if o.Cursor = p.Next; p.Next == "" {
			return all, nil
		}
	}
}

// sandboxes runs operations on several sandboxes.
type sandboxes struct {
	sandboxCommands
	svc brig.Service
}

func (s sandboxes) list(ctx context.Context, o brig.ListOptions) error {
	all, err := listAllSandboxes(ctx, s.svc, o)
	if err != nil {
		return err
	}
	return listOf(s.cli, all, all.Sandboxes, "NAME\tSTATE\tIMAGE\tCREATED\tLEASE\tLABELS", func(s *brig.Sandbox) []string {
		return []string{s.Spec.Name, string(s.State), s.Spec.Image, relativeTime(s.Created), leaseOf(s), labelsOf(s)}
	})
}

// watchInterval is the interval at which ls --watch polls.
const watchInterval = time.Second

// printWhenChanged calls f until ctx ends, and prints the output of f whenever it changes. On a
// terminal, new output replaces the previous output.
func printWhenChanged(ctx context.Context, c *cli, f func() error) error {
	out := c.stdout
	defer func() { c.stdout = out }()
	for former := []byte(nil); ; {
		var now bytes.Buffer
		c.stdout = &now
		if err := f(); err != nil {
			return err
		}
		if former == nil || !bytes.Equal(former, now.Bytes()) {
			if isTerminal(out) {
				_, _ = io.WriteString(out, "\x1b[H\x1b[2J") // clear the screen; the Write below reports errors
			}
			if _, err := out.Write(now.Bytes()); err != nil {
				return err
			}
			former = bytes.Clone(now.Bytes())
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(watchInterval):
		}
	}
}

func leaseOf(s *brig.Sandbox) string {
	if !s.State.IsActive() {
		return "-"
	}
	return formatAge(time.Until(s.Expires))
}

func labelsOf(s *brig.Sandbox) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(s.Spec.Labels)) {
		out = append(out, k+"="+s.Spec.Labels[k])
	}
	return strings.Join(out, ",")
}

func (c sandboxCommands) get() *cobra.Command {
	return &cobra.Command{
		Use:   "get NAME",
		Short: "Show a sandbox as JSON",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				s, err := svc.Get(ctx, args[0])
				if err != nil {
					return err
				}
				return c.printJSON(s)
			})
		},
	}
}

func (c sandboxCommands) extend() *cobra.Command {
	var ttl time.Duration
	cmd := &cobra.Command{
		Use:   "extend NAME",
		Short: "Renew the lease of a sandbox",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				s, err := svc.Extend(ctx, args[0], ttl)
				if err != nil {
					return err
				}
				return c.showSandbox(s, s.Expires.Format(time.RFC3339))
			})
		},
	}
	cmd.Flags().DurationVar(&ttl, "ttl", 0, "new lease, from now (default 5m)")
	return cmd
}

func (c sandboxCommands) pause() *cobra.Command {
	var o brig.PauseOptions
	cmd := c.call("pause", "Save its memory and files to disk until its next use",
		func(svc brig.Service, ctx context.Context, name string) (*brig.Sandbox, error) {
			return svc.Pause(ctx, name, o)
		})
	cmd.Flags().BoolVar(&o.FilesOnly, "files-only", false, "save only the files: no program prevents that, and the next use boots it again")
	return cmd
}

func (c sandboxCommands) stop() *cobra.Command {
	var grace time.Duration
	cmd := c.call("stop", "Stop sandboxes: send TERM, then kill; logs and exit code stay",
		func(svc brig.Service, ctx context.Context, name string) (*brig.Sandbox, error) {
			return svc.Stop(ctx, name, grace)
		})
	cmd.Flags().DurationVar(&grace, "grace", 5*time.Second, "time for programs to exit before they are killed")
	return cmd
}

// call returns a command that makes one call for each sandbox in its
// arguments.
func (c sandboxCommands) call(verb, short string, call func(brig.Service, context.Context, string) (*brig.Sandbox, error)) *cobra.Command {
	return &cobra.Command{
		Use:   verb + " NAME…",
		Short: short,
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.forEach(cmd, args, func(ctx context.Context, svc brig.Service, name string) (*brig.Sandbox, error) {
				return call(svc, ctx, name)
			})
		},
	}
}

func (c sandboxCommands) remove() *cobra.Command {
	var (
		f        sandboxFilter
		all, yes bool
	)
	cmd := &cobra.Command{
		Use:     "rm (NAME… | --all)",
		Aliases: []string{"remove"},
		Short:   "Remove sandboxes, with their files and logs",
		Long: `Remove sandboxes, with their files and logs. Running ones are killed. --all removes
every sandbox of the tenant that --label and --state select; it asks for confirmation,
and needs --yes where standard input is not a terminal.`,
		Example: `  brig sandbox rm one
  brig sandbox rm --all --label team=a --yes`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case all && len(args) > 0:
				return brig.Errorf(brig.InvalidArgument, "--all cannot be combined with names").WithHint("leave out one of the two")
			case !all && (len(f.labels) > 0 || len(f.states) > 0):
				return brig.Errorf(brig.InvalidArgument, "--label and --state need --all").WithHint("for example brig sandbox rm --all --label team=a")
			case !all:
				return cobra.MinimumNArgs(1)(cmd, args)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, names []string) error {
			o, err := f.options()
			if err != nil {
				return err
			}
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				if all {
					return sandboxes{c, svc}.removeAll(ctx, o, yes)
				}
				return sandboxes{c, svc}.runEach(names, func(name string) (*brig.Sandbox, error) { return nil, svc.Remove(ctx, name) })
			})
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVarP(&all, "all", "a", false, "remove all sandboxes")
	addYes(cmd, &yes)
	return cmd
}

// removeAll removes the selected sandboxes, after the user has confirmed the removal.
func (s sandboxes) removeAll(ctx context.Context, o brig.ListOptions, yes bool) error {
	page, err := listAllSandboxes(ctx, s.svc, o)
	if err != nil {
		return err
	}
	if len(page.Sandboxes) == 0 {
		fmt.Fprintln(s.stderr, "no sandboxes to remove")
		return nil
	}
	if !yes {
		p := promptOf(s.cli)
		if !p.terminal {
			return brig.Errorf(brig.InvalidArgument, "--all needs a confirmation, and standard input is not a terminal").WithHint("add --yes")
		}
		const maxNames = 10
		var names []string
		for i, box := range page.Sandboxes {
			if i == maxNames {
				names = append(names, fmt.Sprintf("and %d more", len(page.Sandboxes)-maxNames))
				break
			}
			names = append(names, box.Spec.Name)
		}
		if err := p.confirmYes(fmt.Sprintf("Remove %d sandboxes (%s)?", len(page.Sandboxes), strings.Join(names, ", "))); err != nil {
			return err
		}
	}
	for _, box := range page.Sandboxes {
		// Remove by ID, because another sandbox may have the name by now.
		if err := s.svc.Remove(ctx, string(box.ID)); brig.KindOf(err) == brig.NotFound {
			continue // it is already removed
		} else if err != nil {
			return err
		}
		if !s.asJSON {
			fmt.Fprintln(s.stdout, sanitizeCell(box.Spec.Name))
		}
	}
	return nil
}

// forEach calls f for every named sandbox, and prints the names.
func (c sandboxCommands) forEach(cmd *cobra.Command, names []string, f func(context.Context, brig.Service, string) (*brig.Sandbox, error)) error {
	return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
		return sandboxes{c, svc}.runEach(names, func(name string) (*brig.Sandbox, error) { return f(ctx, svc, name) })
	})
}

// runEach calls f for every name, and prints the names.
func (s sandboxes) runEach(names []string, f func(name string) (*brig.Sandbox, error)) error {
	for _, name := range names {
		box, err := f(name)
		if err != nil {
			return err
		}
		if box == nil && s.asJSON {
			continue // the sandbox no longer exists
		}
		if err := s.showSandbox(box, name); err != nil {
			return err
		}
	}
	return nil
}
