package main

import (
	"context"
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/mcp"
)

func (c *cli) mcpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "mcp",
		Short: "Serve an agent's tools on standard input and output (MCP)",
		Long: `Serve an agent's tools on standard input and output, by the Model Context
Protocol: an agent's host starts this command and speaks with it. It works on
what every command works on: the server that BRIG_URL or --url names, or one that
serves this machine's data folder, or else that folder itself, which it then has
for as long as it runs.

A server has the same tools at /mcp, for those with a key.`,
		Example: `  {"mcpServers": {"brig": {"command": "brig", "args": ["mcp"]}}}`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				log := slog.New(slog.NewTextHandler(c.stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
				o := mcp.Options{Service: svc, Version: version(), Log: log}
				return mcp.Serve(ctx, o, io.NopCloser(c.stdin), unclosed{c.stdout})
			})
		},
	}
}

// unclosed is a writer that is somebody else's to close.
type unclosed struct{ io.Writer }

// Close implements io.Closer.
func (unclosed) Close() error { return nil }
