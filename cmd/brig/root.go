package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/version"
)

// cli holds the state that all commands share: the streams, the common flags, the connection to a
// service, and the output in each format. The commands for one kind of object are methods of a type
// that embeds cli, for example sandboxCommands.
type cli struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	asJSON         bool
	url, key       string
	insecureHTTP   bool
	dataDir        string
	configFile     string
	code           int            // the exit code, if a user's program sets it
	cmd            *cobra.Command // the current command, for the wording of errors
	show           listing        // the output format of lists
	completing     bool           // the shell requested completions
	terminal       bool           // treat the streams as terminals, for tests
}

// execute runs one command line and returns its exit code.
func execute(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	c := &cli{stdin: stdin, stdout: stdout, stderr: stderr}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	c.completing = len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd)
	root := c.program()
	root.SetArgs(separateCommand(root, args))
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	if cmd, err := root.ExecuteContextC(ctx); err != nil {
		return c.report(cmd, err, ctx.Err() != nil)
	}
	return c.code
}

// These are the groups of commands in the help of brig.
const (
	groupRun    = "run"
	groupServer = "server"
	groupAccess = "access"
	groupWatch  = "watch"
)

func (c *cli) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "brig",
		Short: "Run untrusted code in gVisor sandboxes",
		Long: `Brig runs untrusted code in gVisor sandboxes. It needs no Docker, no KVM and no
other service.

Commands use the server that --url or BRIG_URL names. Without one, they use the
server of this machine's data folder if it runs, and otherwise the data folder
itself.

The API key is taken from --key or BRIG_API_KEY. The server of the data folder needs
none: commands use the socket in that folder. Brig sends no key to another machine
in plain HTTP.`,
		Example: `  brig run -c 'print(6*7)'
  brig sandbox create one
  brig serve`,
		Version:       version.String(),
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.ArbitraryArgs, // rejectUnknown reports unknown commands

		PersistentPreRun: func(cmd *cobra.Command, _ []string) { c.cmd = cmd },
	}
	root.SetVersionTemplate(versionLine() + "\n")
	c.addFlags(root.PersistentFlags())
	run, image, serve, host := runCommands{c}, imageCommands{c}, serveCommands{c}, hostCommands{c}
	session, observe, info := sessionCommands{c}, observeCommands{c}, infoCommands{c}
	for _, group := range []struct {
		id, title string
		commands  []*cobra.Command
	}{
		{groupRun, "Run code:", []*cobra.Command{
			run.command(), sandboxCommands{c}.command(), workspaceCommands{c}.command(), volumeCommands{c}.command(), image.command(), image.templates(),
			toolCommands{c}.command(), run.screenCommand(),
		}},
		{groupServer, "Set up and serve:", []*cobra.Command{
			host.quickstartCommand(), serve.command(), serve.mcp(), serve.execman(), providerCommands{c}.command(), host.setup(), host.doctor(),
		}},
		{groupAccess, "Control access:", []*cobra.Command{
			keyCommands{c}.command(), secretCommands{c}.command(), tenantCommands{c}.command(), session.command(), session.whoami(),
			auditCommands{c}.command(), webhookCommands{c}.command(),
		}},
		{groupWatch, "Observe:", []*cobra.Command{
			observe.history(), webhookCommands{c}.events(), observe.usage(), observe.pool(), observe.alerts(), observe.metrics(), observe.capabilities(),
		}},
		{"", "", []*cobra.Command{info.openapi(), docsCommand(c), info.version(), {
			Use: "exit-codes", Short: "Exit codes of brig", Long: exitCodes,
		}}},
	} {
		if group.id != "" {
			root.AddGroup(&cobra.Group{ID: group.id, Title: group.title})
		}
		for _, cmd := range group.commands {
			cmd.GroupID = group.id
			root.AddCommand(cmd)
		}
	}
	root.AddCommand(manCommand(), host.healthcheck()) // used by packages and containers
	return finishRoot(c, root)
}

// addFlags adds the flags that all commands share.
func (c *cli) addFlags(f *pflag.FlagSet) {
	f.BoolVar(&c.asJSON, "json", false, "print JSON, as the REST API returns it")
	f.StringVar(&c.url, "url", os.Getenv("BRIG_URL"), "`URL` of a server (BRIG_URL)")
	f.StringVar(&c.key, "key", "", "API `key` (BRIG_API_KEY); without one, commands use the data folder's server through its socket")
	insecure, _ := strconv.ParseBool(os.Getenv("BRIG_INSECURE_HTTP")) // an invalid value means false
	f.BoolVar(&c.insecureHTTP, "insecure-http", insecure, "allow sending the key to another machine in plain HTTP (BRIG_INSECURE_HTTP)")
	f.StringVar(&c.dataDir, "data-dir", "", "data `folder`, with images, sandboxes and records (BRIG_DATA_DIR)")
	f.StringVar(&c.configFile, "config", os.Getenv("BRIG_CONFIG"), "configuration `file` in YAML (BRIG_CONFIG)")
}

// finishRoot completes a root command that has all its commands.
func finishRoot(c *cli, root *cobra.Command) *cobra.Command {
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpCmd()
	rejectUnknown(root)
	root.SetFlagErrorFunc(flagError)
	root.SetUsageTemplate(strings.Replace(root.UsageTemplate(), "{{if .Runnable}}", `{{if and .Runnable (not (index .Annotations "`+onlyGroup+`"))}}`, 1))
	forEachCommand(root, func(cmd *cobra.Command) {
		if cmd.Args != nil && cmd.HasParent() {
			cmd.Args = checkArguments(cmd.Args)
		}
		path := strings.TrimPrefix(cmd.CommandPath(), root.Name()+" ")
		if cmd.Example == "" {
			cmd.Example = examples[path]
		}
		if empty, ok := emptyLists[path]; ok {
			addListFlags(c, cmd, empty)
		}
	})
	completion{c}.registerNames(root)
	return root
}

// forEachCommand calls f for a command and all commands below it.
func forEachCommand(cmd *cobra.Command, f func(*cobra.Command)) {
	f(cmd)
	for _, sub := range cmd.Commands() {
		forEachCommand(sub, f)
	}
}

// onlyGroup is the annotation of a command that only groups others. Without the
// annotation, cobra would print the group as a runnable command in the usage.
const onlyGroup = "group"

// rejectUnknown makes an unknown command an error at every level. By default, cobra prints help and
// exits with 0, which would look like success to a script.
func rejectUnknown(group *cobra.Command) {
	for _, cmd := range group.Commands() {
		if cmd.Name() == "help" {
			rejectUnknownHelp(cmd)
		}
		if cmd.HasSubCommands() {
			rejectUnknown(cmd)
		}
	}
	group.SuggestionsMinimumDistance = 2
	if group.Runnable() {
		return
	}
	group.Annotations, group.Args = map[string]string{onlyGroup: "true"}, cobra.ArbitraryArgs
	group.RunE = func(group *cobra.Command, args []string) error {
		if len(args) == 0 {
			return group.Help()
		}
		return unknownCommandError(group, args[0])
	}
}

// rejectUnknownHelp makes help about an unknown command an error. By default, cobra
// prints the help of brig instead.
func rejectUnknownHelp(help *cobra.Command) {
	show := help.Run
	help.Run = nil
	help.RunE = func(help *cobra.Command, args []string) error {
		if about, rest, _ := help.Root().Find(args); len(rest) > 0 {
			return unknownCommandError(about, rest[0])
		}
		show(help, args)
		return nil
	}
}

func unknownCommandError(group *cobra.Command, word string) error {
	e := brig.Errorf(brig.InvalidArgument, "unknown command %q for %q", word, group.CommandPath())
	if near := group.SuggestionsFor(word); len(near) > 0 {
		return e.WithHint("did you mean %q?", near[0])
	}
	return e.WithHint("see %s --help", group.CommandPath())
}
