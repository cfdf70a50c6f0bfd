package guest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest/wire"
)

// brokenConn is a connection to an agent that responds and disconnects while the host is still
// writing. A write fails first, and then the response arrives.
type brokenConn struct {
	net.Conn
	response       *bytes.Reader
	writes         int
	failed, closed chan struct{}
	once           sync.Once
}

func (c *brokenConn) Write(p []byte) (int, error) {
	if c.writes++; c.writes > 1 {
		close(c.failed)
		return 0, errors.New("broken pipe")
	}
	return len(p), nil
}

func (c *brokenConn) Read(p []byte) (int, error) {
	<-c.failed
	select {
	case <-c.closed:
		return 0, net.ErrClosed
	case <-time.After(50 * time.Millisecond):
		return c.response.Read(p)
	}
}

func (c *brokenConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// The error of an agent that rejects a tree, for example because its disk is
// full, reaches the caller although the rest of the tree cannot be written.
func TestUnpackReturnsAgentError(t *testing.T) {
	response := frames(wire.TypeError, `{"Kind":"exhausted","Message":"the disk is full"}`)
	g := &Guest{Dial: func(context.Context) (net.Conn, error) {
		host, guest := net.Pipe()
		t.Cleanup(func() { guest.Close() })
		return &brokenConn{Conn: host, response: bytes.NewReader(response), failed: make(chan struct{}), closed: make(chan struct{})}, nil
	}}
	err := g.Unpack(t.Context(), "/workspace", brig.UnpackOptions{}, func(put func(brig.Node, io.Reader) error) error {
		return put(brig.Node{Path: "a", Type: brig.RegularFile, Size: 4 * chunkSize}, strings.NewReader(strings.Repeat("x", 4*chunkSize)))
	})
	if err == nil || !strings.Contains(err.Error(), "disk is full") {
		t.Errorf("unpack: %v", err)
	}
}

// An error of the source ends the call and is returned.
func TestUnpackReturnsSourceError(t *testing.T) {
	lost := errors.New("the store does not answer")
	g := &Guest{Dial: func(context.Context) (net.Conn, error) {
		host, guest := net.Pipe()
		go func() {
			_, _ = io.Copy(io.Discard, guest)
			guest.Close()
		}()
		return host, nil
	}}
	err := g.Unpack(t.Context(), "/workspace", brig.UnpackOptions{}, func(put func(brig.Node, io.Reader) error) error {
		return lost
	})
	if !errors.Is(err, lost) {
		t.Errorf("unpack: %v", err)
	}
}
