package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
)

// cli is what every command shares.
type cli struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	asJSON         bool
	url, key       string
	insecureHTTP   bool
	dataDir        string
	configFile     string
	code           int // the exit code, when a program of the user's sets it
}

// execute runs one command line and returns its exit code.
func execute(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	c := &cli{stdin: stdin, stdout: stdout, stderr: stderr}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := c.root()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	if err := root.ExecuteContext(ctx); err != nil {
		return c.report(err, ctx.Err() != nil)
	}
	return c.code
}

func (c *cli) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "brig",
		Short: "Run code that nobody has reviewed, isolated by gVisor",
		Long: `Brig runs code of unknown origin behind a user-space kernel: no Docker, no KVM,
nothing to install. Commands work on this machine's own data folder, or on the
server that BRIG_URL or --url names, or on one that serves this data folder.

Without --key, the server of this data folder gets the folder's key. The command
sends that key to no other server, and no key to another machine in plain HTTP.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	f := root.PersistentFlags()
	f.BoolVar(&c.asJSON, "json", false, "print JSON, in the form of the REST API")
	f.StringVar(&c.url, "url", os.Getenv("BRIG_URL"), "`URL` of a server (BRIG_URL)")
	f.StringVar(&c.key, "key", "", "API `key` (BRIG_API_KEY; default: for the data folder's server, the folder's)")
	insecure, _ := strconv.ParseBool(os.Getenv("BRIG_INSECURE_HTTP")) // what is neither is no
	f.BoolVar(&c.insecureHTTP, "insecure-http", insecure, "send the key in plain HTTP to another machine, too (BRIG_INSECURE_HTTP)")
	f.StringVar(&c.dataDir, "data-dir", "", "`folder` of images, sandboxes and records (BRIG_DATA_DIR)")
	f.StringVar(&c.configFile, "config", os.Getenv("BRIG_CONFIG"), "configuration `file` in YAML (BRIG_CONFIG)")
	root.AddCommand(c.runCommand(), c.serveCommand(), c.execmanCommand(), c.mcpCommand(), c.sandboxCommand(), c.imageCommand(), c.templateCommand(), c.poolCommand(),
		c.keyCommand(), c.sessionCommand(), c.whoamiCommand(), c.tenantCommand(), c.providerCommand(), c.usageCommand(), c.alertsCommand(), c.metricsCommand(), c.secretCommand(), c.toolCommand(), c.workspaceCommand(), c.auditCommand(),
		c.capabilitiesCommand(), c.doctorCommand(), c.screenCommand(), c.setupCommand(), c.benchCommand(), c.openapiCommand(), c.versionCommand())
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpCmd()
	strict(root)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return brig.Errorf(brig.InvalidArgument, "%v", err).WithHint("see --help")
	})
	return root
}

// strict has a word that is no command be an error below root, too: the library
// answers it with help and success, which a script takes for done.
func strict(cmd *cobra.Command) {
	for _, group := range cmd.Commands() {
		if group.Name() == "help" {
			strictHelp(group)
		}
		if !group.HasSubCommands() || group.Runnable() {
			continue
		}
		strict(group)
		group.DisableFlagsInUseLine, group.SuggestionsMinimumDistance = true, 2
		group.RunE = func(group *cobra.Command, args []string) error {
			if len(args) == 0 {
				return group.Help()
			}
			return noCommand(group, args[0])
		}
	}
}

// strictHelp has no help about what is no command, which the library takes for
// help about brig.
func strictHelp(help *cobra.Command) {
	show := help.Run
	help.Run = nil
	help.RunE = func(help *cobra.Command, args []string) error {
		if about, rest, _ := help.Root().Find(args); len(rest) > 0 {
			return noCommand(about, rest[0])
		}
		show(help, args)
		return nil
	}
}

func noCommand(group *cobra.Command, word string) error {
	e := brig.Errorf(brig.InvalidArgument, "unknown command %q for %q", word, group.CommandPath())
	if near := group.SuggestionsFor(word); len(near) > 0 {
		return e.WithHint("did you mean %q?", near[0])
	}
	return e.WithHint("see %s --help", group.CommandPath())
}

// Exit codes of brig itself, apart from a program's own.
const (
	exitError  = 125 // brig failed
	exitUsage  = 2   // the command line is wrong
	exitSignal = 130 // interrupted
)

// report tells the user what went wrong and returns the exit code.
func (c *cli) report(err error, interrupted bool) int {
	told := &brig.Error{Kind: brig.InvalidArgument, Message: err.Error(), Hint: "see --help"}
	if e, ok := errors.AsType[*brig.Error](err); ok {
		told = e
	} else if !isUsage(err) {
		told = brig.AsError(err)
	}
	c.printError(told)
	switch {
	case interrupted:
		return exitSignal
	case told.Kind == brig.InvalidArgument:
		return exitUsage
	default:
		return exitError
	}
}
