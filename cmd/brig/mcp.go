package main

import (
	"context"
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/mcp"
	"github.com/brig-run/brig/internal/version"
)

func (c serveCommands) mcp() *cobra.Command {
	return &cobra.Command{
		Use:   "mcp",
		Short: "Serve the Model Context Protocol on standard input and output",
		Long: `Serve tools for agents on standard input and output, with the Model Context Protocol. An
agent's host, for example an editor, starts this command. Its configuration is:

  {"mcpServers": {"brig": {"command": "brig", "args": ["mcp"]}}}

Like every command, it uses the server that BRIG_URL or --url names, or the server of
this machine's data folder, or that folder itself, which no other command can use then.
It continues with the folder's next server.
A server has the same tools at /mcp, for clients with a key.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				log := slog.New(slog.NewTextHandler(c.stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
				o := mcp.Options{Service: svc, Version: version.String(), Log: log}
				return mcp.Serve(ctx, o, io.NopCloser(c.stdin), nopWriteCloser{c.stdout})
			})
		},
	}
}

// nopWriteCloser adds a no-op Close method to a writer.
type nopWriteCloser struct{ io.Writer }

// Close implements io.Closer.
func (nopWriteCloser) Close() error { return nil }
