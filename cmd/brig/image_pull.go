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

func (c *cli) imagePull() *cobra.Command {
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
				return brig.InvalidField("username", "there is no password").WithHint("give it on the standard input, with --password-stdin")
			}
			return c.use(cmd, true, func(ctx context.Context, svc brig.Service) error {
				report, finish := c.progress()
				i, err := svc.PullImage(ctx, p, report)
				finish()
				if err != nil {
					return err
				}
				for _, n := range i.Notes {
					fmt.Fprintln(c.stderr, clean(n))
				}
				return c.showImage(i)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&p.Platform, "platform", "", "for example linux/arm64 (default: this machine's)")
	f.StringVar(&p.Username, "username", "", "user `name` at the registry")
	f.BoolVar(&stdin, "password-stdin", false, "read the password, or without a user name a token, from the standard input")
	f.BoolVar(&p.Insecure, "insecure", false, "admit plain HTTP")
	return cmd
}

// readPassword reads one line. A password is no argument, since everybody on
// the machine can read those.
func readPassword(r io.Reader) (string, error) {
	line, err := bufio.NewReader(io.LimitReader(r, 64<<10)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("read password: %w", err)
	}
	if line = strings.TrimRight(line, "\r\n"); line == "" {
		return "", brig.InvalidField("password-stdin", "there is nothing on the standard input").
			WithHint("for example: brig image pull --username ann --password-stdin REF < FILE")
	}
	return line, nil
}
