package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/ui"
)

// docsSource is the address of the documentation's source. It is used on machines without a running
// server.
const docsSource = "https://github.com/brig-run/brig/tree/main/docs"

func docsCommand(c *cli) *cobra.Command {
	var only bool
	cmd := &cobra.Command{
		Use:   "docs",
		Short: "Open the documentation in a browser, and print its address",
		Long: `Print the address of the documentation, and open it in a browser on a desktop. The
documentation is that of the server, which offers it without a key. Without a server,
the address is that of its source.`,
		Example: `  brig docs
  brig docs --print`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			address, err := findDocsAddress(c)
			if err != nil {
				return err
			}
			if c.asJSON {
				return c.printJSON(map[string]string{"url": address})
			}
			if _, err := fmt.Fprintln(c.stdout, address); err != nil || only || !c.terminal && !isTerminal(c.stdout) {
				return err
			}
			return openBrowser(cmd.Context(), address)
		},
	}
	cmd.Flags().BoolVar(&only, "print", false, "print the address, and open no browser")
	return cmd
}

// findDocsAddress returns the address of the server's documentation. If there is no server, it
// returns docsSource.
func findDocsAddress(c *cli) (string, error) {
	server := c.url
	if server == "" {
		dir, err := c.resolveDataFolder()
		if err != nil {
			return "", err
		}
		server = serverOf(dir)
	}
	if server == "" {
		fmt.Fprintln(c.stderr, "No server runs on this machine. brig serve offers the documentation at "+ui.DocsPrefix+".")
		return docsSource, nil
	}
	u, err := url.Parse(server)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", brig.InvalidField("--url", "the value is not a URL of a server").WithHint("write it as http://127.0.0.1:2744")
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.JoinPath(ui.DocsPrefix).String(), nil
}

// openBrowser opens an address in the user's browser, if there is a graphical session.
func openBrowser(ctx context.Context, address string) error {
	if cmp.Or(os.Getenv("DISPLAY"), os.Getenv("WAYLAND_DISPLAY")) == "" {
		return nil
	}
	program, err := exec.LookPath("xdg-open")
	if errors.Is(err, exec.ErrNotFound) {
		return nil // the address has been printed
	}
	if err != nil {
		return brig.Errorf(brig.FailedPrecondition, "xdg-open cannot be run").WithHint("open %s yourself, or use --print", address).Because(err)
	}
	if err := exec.CommandContext(ctx, program, address).Run(); err != nil {
		return brig.Errorf(brig.FailedPrecondition, "xdg-open cannot open a browser").WithHint("open %s yourself, or use --print", address).Because(err)
	}
	return nil
}
