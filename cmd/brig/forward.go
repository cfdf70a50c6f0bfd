package main

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/rest"
)

func (c *cli) sandboxForward() *cobra.Command {
	return &cobra.Command{
		Use:   "forward NAME [LOCAL:]PORT",
		Short: "Make a TCP port inside it one of this machine's loopback",
		Long: `Listen on this machine's loopback and carry each connection to a port inside a
sandbox, until interrupted. LOCAL is the port to listen on, 0 for any that is free;
without it, it is the same as inside.`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			local, port, err := portsOf(args[1])
			if err != nil {
				return err
			}
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				return c.forward(ctx, svc, args[0], local, port)
			})
		},
	}
}

// portsOf reads "8080:80", or one port for both sides.
func portsOf(s string) (local, inside int, err error) {
	here, there, two := strings.Cut(s, ":")
	if !two {
		there = here
	}
	local, err = strconv.Atoi(here)
	if err == nil {
		inside, err = strconv.Atoi(there)
	}
	if err != nil || local < 0 || local > 65535 || inside < 1 || inside > 65535 {
		return 0, 0, brig.InvalidField("PORT", "%q is not a port", s).WithHint("for example 80, or 8080:80 to listen on 8080")
	}
	return local, inside, nil
}

// forward carries connections until ctx ends.
func (c *cli) forward(ctx context.Context, svc brig.Service, name string, local, port int) error {
	if _, err := svc.Get(ctx, name); err != nil {
		return err // before anybody connects
	}
	ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", local))
	if err != nil {
		return brig.Errorf(brig.ConnectionFailed, "cannot listen on port %d", local).
			WithHint("choose another: %d:%d, or 0:%d for any that is free", local+1, port, port).Because(err)
	}
	defer context.AfterFunc(ctx, func() { ln.Close() })()
	fmt.Fprintf(c.stdout, "%s is port %d of %s\n", ln.Addr(), port, name)
	var tell sync.Mutex // one line at a time
	for {
		conn, err := ln.Accept()
		if ctx.Err() != nil {
			return nil // interrupted, which is how this ends
		}
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			inside, err := svc.Dial(ctx, name, port)
			if err != nil {
				tell.Lock()
				defer tell.Unlock()
				c.printError(brig.AsError(err))
				return
			}
			defer context.AfterFunc(ctx, func() { inside.Close() })()
			rest.Relay(conn, inside)
		}()
	}
}
