package docker

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/client"

	"github.com/brig-run/brig/guest/wire"
)

// A session is an exec of the engine in the container. It runs the agent's own
// program as the agent's user, which relays bytes between the exec's standard
// streams and the container's init. Each server has a separate session to each
// sandbox, and opens a new one when a session is lost.

// dial implements guest.Guest's Dial.
func (i *instance) dial(ctx context.Context) (net.Conn, error) {
	i.sessions.Lock()
	defer i.sessions.Unlock()
	if i.session != nil {
		if c, err := i.session.Open(); err == nil {
			return c, nil
		}
		_ = i.session.Close()
		i.session = nil
	}
	select {
	case <-i.done:
		return nil, errEnded
	default:
	}
	m, err := i.connect(ctx)
	if err != nil {
		return nil, err
	}
	i.session = m
	return m.Open()
}

// connect opens a session.
func (i *instance) connect(ctx context.Context) (*wire.Mux, error) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	api := i.p.api
	made, err := api.ExecCreate(ctx, i.container, client.ExecCreateOptions{
		User: fmt.Sprintf("%d:%d", wire.AgentID, wire.AgentID), Cmd: []string{agentPath, wire.RelayWord}, WorkingDir: "/",
		AttachStdin: true, AttachStdout: true, AttachStderr: true,
	})
	if err != nil {
		return nil, fmt.Errorf("begin a session: %w", err)
	}
	// Once open, the connection does not end with ctx.
	got, err := i.p.transport.attach(ctx, api, made.ID)
	if err != nil {
		return nil, fmt.Errorf("begin a session: %w", err)
	}
	return wire.NewMux(&relayed{ReadWriteCloser: got, r: bufio.NewReader(got), said: i.logRelay}, false), nil
}

// disconnect ends the session, if there is one.
func (i *instance) disconnect() {
	i.sessions.Lock()
	defer i.sessions.Unlock()
	if i.session != nil {
		_ = i.session.Close()
		i.session = nil
	}
}

// relayed is the stream of an exec. The relay's output arrives in parts, each
// with a header that contains the stream's number and the length.
type relayed struct {
	io.ReadWriteCloser
	r    *bufio.Reader
	left int               // remaining bytes of the part
	said func(text string) // receives the relay's messages
}

// Read implements io.Reader.
func (c *relayed) Read(p []byte) (int, error) {
	for c.left == 0 {
		var h [8]byte
		if _, err := io.ReadFull(c.r, h[:]); err != nil {
			return 0, err
		}
		n := binary.BigEndian.Uint32(h[4:])
		switch stdcopy.StdType(h[0]) {
		case stdcopy.Stdout:
			if n > 1<<30 {
				return 0, fmt.Errorf("a part of %d bytes", n)
			}
			c.left = int(n)
		case stdcopy.Stderr, stdcopy.Systemerr:
			var text strings.Builder
			if _, err := io.CopyN(&text, c.r, int64(min(n, 4096))); err != nil {
				return 0, err
			}
			if _, err := io.CopyN(io.Discard, c.r, int64(n-min(n, 4096))); err != nil {
				return 0, err
			}
			c.said(text.String())
		default:
			return 0, fmt.Errorf("a part of stream %d", h[0])
		}
	}
	n, err := c.r.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}
