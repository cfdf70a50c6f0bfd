package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
)

func (c imageCommands) pull() *cobra.Command {
	var p brig.ImagePull
	var stdin bool
	cmd := &cobra.Command{
		Use:   "pull REF",
		Short: "Pull an image from a registry",
		Example: `  brig image pull python:3.11-slim
  brig image pull registry.example/owner/name@sha256:…
  brig image pull --username ann --password-stdin registry.example/x:1 < token`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p.Ref = args[0]
			if stdin {
				var err error
				if p.Password, err = readPassword(c.stdin); err != nil {
					return err
				}
			} else if p.Username != "" {
				var err error
				if p.Password, err = promptOf(c.cli).readSecret("Password"); err != nil {
					return err
				}
				if p.Password == "" {
					return brig.InvalidField("--username", "the password is missing").WithHint("give it on standard input, with --password-stdin")
				}
			}
			return c.use(cmd, true, func(ctx context.Context, svc brig.Service) error {
				report, finish := c.newProgress()
				i, err := svc.PullImage(ctx, p, report)
				finish()
				if err != nil {
					return err
				}
				for _, n := range i.Notes {
					fmt.Fprintln(c.stderr, sanitizeText(n))
				}
				return c.showImage(i)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&p.Platform, "platform", "", "`platform`, for example linux/arm64 (default: this machine's)")
	f.StringVar(&p.Username, "username", "", "user `name` at the registry")
	f.BoolVar(&stdin, "password-stdin", false, "read the password (without --username: a token) from standard input")
	f.BoolVar(&p.Insecure, "insecure", false, "allow a registry in plain HTTP")
	return cmd
}

// readPassword reads one line. Passwords are not passed as arguments, because
// every user of the machine can read process arguments.
func readPassword(r io.Reader) (string, error) {
	line, err := bufio.NewReader(io.LimitReader(r, 64<<10)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("read password: %w", err)
	}
	if line = strings.TrimRight(line, "\r\n"); line == "" {
		return "", brig.InvalidField("--password-stdin", "standard input is empty").
			WithHint("for example brig image pull --username ann --password-stdin REF < FILE")
	}
	return line, nil
}
