package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
)

func (c networkCommands) forward() *cobra.Command {
	return &cobra.Command{
		Use:   "forward NAME [LOCAL:]PORT",
		Short: "Forward a local port to a port in a sandbox",
		Long: `Listen on a loopback address (127.x.y.z) and forward each connection to a port in the
sandbox, until interrupted. LOCAL is the port to listen on, by default the same as in the
sandbox; 0 chooses a free one.

Each sandbox has a loopback address of its own, because browsers send the cookies of a
host to all of its ports: the sandbox gets no cookies of the console or of other local
servers. On a system without such addresses, the command listens on 127.0.0.1, prints a
warning, and rejects TLS. HTTP requests never carry Brig's cookies and keys.`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			local, port, err := parsePorts(args[1])
			if err != nil {
				return err
			}
			return c.use(cmd, false, func(ctx context.Context, svc brig.Service) error {
				return c.forwardPort(ctx, svc, args[0], local, port)
			})
		},
	}
}

// parsePorts parses "LOCAL:PORT", or one port for both sides.
func parsePorts(s string) (local, inside int, err error) {
	localPart, insidePart, two := strings.Cut(s, ":")
	if !two {
		insidePart = localPart
	}
	local, err = strconv.Atoi(localPart)
	if err == nil {
		inside, err = strconv.Atoi(insidePart)
	}
	if err != nil || local < 0 || local > 65535 || inside < 1 || inside > 65535 {
		return 0, 0, brig.InvalidField("PORT", "%q is not a port", s).WithHint("for example 80, or 8080:80 to listen on 8080")
	}
	return local, inside, nil
}

// sharedLoopback is the loopback address that other servers on this machine
// use.
const sharedLoopback = "127.0.0.1"

// loopbackOf returns the loopback address on which a sandbox is forwarded. It
// depends only on the sandbox, so that a browser never sends the cookies of one
// sandbox to another. It is outside of 127.0.0.0/16, where other programs
// listen.
func loopbackOf(id brig.ID) string {
	sum := sha256.Sum256([]byte("forward:" + string(id)))
	return netip.AddrFrom4([4]byte{127, 1 + sum[0]%254, sum[1], 1 + sum[2]%254}).String()
}

// listenFor listens on the sandbox's own loopback address, or on the shared one
// if the system has only that one.
func listenFor(id brig.ID, port int) (ln net.Listener, shared bool, err error) {
	own := loopbackOf(id)
	ln, err = net.Listen("tcp", net.JoinHostPort(own, strconv.Itoa(port)))
	if err == nil {
		return ln, false, nil
	}
	// Check whether the address is missing or the port is in use.
	probe, missing := net.Listen("tcp", net.JoinHostPort(own, "0"))
	if missing == nil {
		probe.Close()
		return nil, false, err
	}
	ln, err = net.Listen("tcp", net.JoinHostPort(sharedLoopback, strconv.Itoa(port)))
	return ln, true, err
}

// newShield returns the filter that removes the credentials of a service's server from requests to
// sandboxes. If the service is not a server's client, no identity provider's tokens are filtered.
func newShield(ctx context.Context, svc brig.Service) (httpapi.Shield, error) {
	server, ok := svc.(interface {
		TokenRule(context.Context) (brig.TokenRule, error)
	})
	if !ok {
		return httpapi.Shield{}, nil
	}
	rule, err := server.TokenRule(ctx)
	return httpapi.Shield{Accepts: rule.Accepts}, err
}

// forwardPort forwards connections until ctx ends.
func (c networkCommands) forwardPort(ctx context.Context, svc brig.Service, name string, local, port int) error {
	s, err := svc.Get(ctx, name)
	if err != nil {
		return err // fail before the first connection
	}
	shield, err := newShield(ctx, svc)
	if err != nil {
		return err
	}
	ln, shared, err := listenFor(s.ID, local)
	if err != nil {
		return brig.Errorf(brig.ConnectionFailed, "cannot listen on port %d", local).
			WithHint("choose another local port: %d:%d, or 0:%d for a free one", local+1, port, port).Because(err)
	}
	if shared {
		own := loopbackOf(s.ID)
		fmt.Fprintf(c.stderr, "brig: this system has no loopback address %s: listening on %s, which other servers share. "+
			"Browsers send their cookies to the sandbox as well, except Brig's own; TLS is refused. "+
			"To give the sandbox its own address (macOS): sudo ifconfig lo0 alias %s\n", own, sharedLoopback, own)
	}
	var printMu sync.Mutex // serializes the printed lines
	f := newForwarder(shared, func(ctx context.Context) (net.Conn, error) {
		// Use the ID, because another sandbox may have the name later.
		return svc.Dial(ctx, string(s.ID), port)
	}, func(err error) {
		printMu.Lock()
		defer printMu.Unlock()
		c.printError(brig.AsError(err))
	})
	f.shield = shield
	fmt.Fprintf(c.stdout, "http://%s is port %d of %s\n", ln.Addr(), port, sanitizeText(name))
	return f.serve(ctx, ln)
}
