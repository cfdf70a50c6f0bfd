package docker

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
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

// dial implements guest.Guest's Dial. If the engine is stuck, dial waits until ctx ends.
func (i *instance) dial(ctx context.Context) (net.Conn, error) {
	i.sessions.Lock()
	m := i.session
	i.sessions.Unlock()
	if m != nil {
		if c, err := m.Open(); err == nil {
			return c, nil
		}
	}
	select {
	case <-i.done:
		return nil, errEnded
	default:
	}
	m, err := i.connecting.Do(ctx, startTimeout, func(ctx context.Context) (*wire.Mux, error) { return i.replaceSession(ctx, m) })
	if err != nil {
		return nil, err
	}
	return m.Open()
}

// replaceSession replaces an unusable session, unless another call has already
// replaced it.
func (i *instance) replaceSession(ctx context.Context, of *wire.Mux) (*wire.Mux, error) {
	i.sessions.Lock()
	if i.session != of {
		defer i.sessions.Unlock()
		if i.session == nil {
			return nil, errDisconnected
		}
		return i.session, nil
	}
	if of != nil {
		_ = of.Close()
		i.session = nil
	}
	ends := i.disconnects
	i.sessions.Unlock()
	m, err := i.connect(ctx)
	if err != nil {
		return nil, err
	}
	i.sessions.Lock()
	defer i.sessions.Unlock()
	if i.disconnects != ends {
		_ = m.Close()
		return nil, errDisconnected
	}
	i.session = m
	return m, nil
}

// errDisconnected is the error of calls after the instance has been
// disconnected.
var errDisconnected = errors.New("the session has ended")

// connect opens a session.
func (i *instance) connect(ctx context.Context) (*wire.Mux, error) {
	api := i.p.api
	made, err := api.ExecCreate(ctx, i.container, client.ExecCreateOptions{
		User: fmt.Sprintf("%d:%d", wire.AgentID, wire.AgentID), Cmd: []string{agentPath, wire.RelayWord}, WorkingDir: "/",
		AttachStdin: true, AttachStdout: true, AttachStderr: true,
	})
	if err != nil {
		return nil, fmt.Errorf("begin a session: %w", err)
	}
	// Once it is open, the connection outlives ctx.
	got, err := i.p.transport.attach(ctx, api, made.ID)
	if err != nil {
		return nil, fmt.Errorf("begin a session: %w", err)
	}
	return wire.NewMux(&execStream{ReadWriteCloser: got, r: bufio.NewReader(got), onMessage: i.logRelay}, false), nil
}

// disconnect ends the session, if there is one.
func (i *instance) disconnect() {
	i.sessions.Lock()
	defer i.sessions.Unlock()
	i.disconnects++
	if i.session != nil {
		_ = i.session.Close()
		i.session = nil
	}
}

// execStream is the stream of an exec. The relay's output arrives in parts, each
// with a header that contains the stream's number and the length.
type execStream struct {
	io.ReadWriteCloser
	r         *bufio.Reader
	remaining int               // remaining bytes of the part
	onMessage func(text string) // receives the relay's messages
}

// Read implements io.Reader.
func (c *execStream) Read(p []byte) (int, error) {
	for c.remaining == 0 {
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
			c.remaining = int(n)
		case stdcopy.Stderr, stdcopy.Systemerr:
			var text strings.Builder
			if _, err := io.CopyN(&text, c.r, int64(min(n, 4096))); err != nil {
				return 0, err
			}
			if _, err := io.CopyN(io.Discard, c.r, int64(n-min(n, 4096))); err != nil {
				return 0, err
			}
			c.onMessage(text.String())
		default:
			return 0, fmt.Errorf("a part of stream %d", h[0])
		}
	}
	n, err := c.r.Read(p[:min(len(p), c.remaining)])
	c.remaining -= n
	return n, err
}
