package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/version"
)

// manCommand writes the manual pages of all commands, for packages.
func manCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "man FOLDER",
		Short:  "Write the manual pages of all commands into a folder",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return brig.Errorf(brig.InvalidArgument, "%s: cannot create the folder", args[0]).Because(err)
			}
			cmd.Root().DisableAutoGenTag = true
			return doc.GenManTree(cmd.Root(), &doc.GenManHeader{Section: "1", Source: "brig " + version.String(), Manual: "Brig"}, args[0])
		},
	}
}

// healthTimeout bounds one health check.
const healthTimeout = 5 * time.Second

// healthcheck returns the command that checks whether the server of the
// data folder is ready. It serves as the health check of containers whose image
// has no other program.
func (c hostCommands) healthcheck() *cobra.Command {
	return &cobra.Command{
		Use:    "healthcheck",
		Short:  "Exit with 0 if the data folder's server, or the one of --url, is ready",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if c.url != "" {
				return checkReady(cmd.Context(), c.url, c.url, http.DefaultTransport)
			}
			dir, err := c.resolveDataFolder()
			if err != nil {
				return err
			}
			if serverOf(dir) == "" {
				return brig.Errorf(brig.Unavailable, "no server uses the data folder %s", dir).WithHint("start one with brig serve, or name one with --url")
			}
			return checkReady(cmd.Context(), filepath.Join(dir, socketFile), socketURL, socketTransport(dir))
		},
	}
}

// checkReady returns an error unless the server with the given name can create
// sandboxes. It requests /readyz, which requires no API key.
func checkReady(ctx context.Context, name, url string, through http.RoundTripper) error {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/readyz", nil)
	if err != nil {
		return brig.InvalidField("url", "%q is not a URL", url).Because(err)
	}
	// The health check must not follow redirects to another server.
	c := http.Client{Transport: through, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := c.Do(req)
	if err != nil {
		return brig.Errorf(brig.Unavailable, "the server at %s does not answer", name).Because(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 1000))
		return brig.Errorf(brig.Unavailable, "the server at %s is not ready", name).Because(fmt.Errorf("%s: %s", resp.Status, b))
	}
	return nil
}
