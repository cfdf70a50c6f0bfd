package guest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest/wire"
)

// openTestUplink returns a network link to an agent whose side the test controls. The agent
// receives one call and accepts it.
func openTestUplink(t *testing.T) (brig.Uplink, net.Conn, wire.Uplink) {
	t.Helper()
	ours, theirs := net.Pipe()
	g := &Guest{Dial: func(context.Context) (net.Conn, error) { return ours, nil }}
	calls := make(chan wire.Uplink, 1)
	go func() {
		var call wire.Call
		f, err := wire.NewReader(theirs).Read()
		if err == nil {
			err = json.Unmarshal(f.Payload, &call)
		}
		if err == nil && call.Op == wire.OpUplink && call.Uplink != nil {
			calls <- *call.Uplink
			_ = wire.Write(theirs, wire.TypeOK, nil)
		}
		close(calls)
	}()
	up, err := g.Uplink(t.Context(), []byte("authority"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { up.Close(); theirs.Close() })
	return up, theirs, <-calls
}

func TestUplinkCallHasNetworkConfiguration(t *testing.T) {
	_, _, got := openTestUplink(t)
	if got.Address != "198.18.0.2/15" || got.Gateway != "198.18.0.1" || got.MTU != 65535 || string(got.Authority) != "authority" {
		t.Errorf("asked for %+v", got)
	}
}

// Data that is not a valid packet ends the link in both directions.
func TestUplinkEndsOnInvalidPacket(t *testing.T) {
	for name, bytes := range map[string][]byte{"no length": {0, 0}, "cut": {0, 5, 1}, "half a length": {9}} {
		up, agent, _ := openTestUplink(t)
		go func() {
			_, _ = agent.Write(append(wire.AppendPacket(nil, []byte("fine")), bytes...))
			agent.Close()
		}()
		b := make([]byte, brig.UplinkMTU)
		if n, err := up.Receive(b); err != nil || string(b[:n]) != "fine" {
			t.Errorf("%s: before it: %q, %v", name, b[:n], err)
		}
		for range 2 {
			if n, err := up.Receive(b); n != 0 || !errors.Is(err, ErrLost) {
				t.Errorf("%s: %d bytes, %v", name, n, err)
			}
		}
		if err := up.Send([]byte("x")); !errors.Is(err, ErrLost) {
			t.Errorf("%s: send: %v", name, err)
		}
	}
}

// A sandbox that does not read does not block senders. It receives the queued
// packets when it reads again.
func TestUplinkDoesNotBlockSenders(t *testing.T) {
	up, agent, _ := openTestUplink(t)
	packet := bytes.Repeat([]byte("x"), 60000)
	const sent = 3 * queued / 60000
	for range sent {
		if err := up.Send(packet); err != nil {
			t.Fatal(err)
		}
	}
	r, b := wire.NewPackets(agent), make([]byte, wire.MaxPacket)
	got := 0
	for {
		silence := 300 * time.Millisecond
		if got == 0 { // on a busy host, the first packet takes a while
			silence = time.Minute
		}
		_ = agent.SetReadDeadline(time.Now().Add(silence))
		n, err := r.Read(b)
		if err != nil {
			break
		}
		if !bytes.Equal(b[:n], packet) {
			t.Fatalf("packet %d has %d bytes", got, n)
		}
		got++
	}
	if limit := 2*queued/60000 + 1; got == 0 || got > limit || got >= sent {
		t.Errorf("%d of %d packets came, at most %d may wait", got, sent, limit)
	}
}

// Close ends a pending call, even a write that is not being read.
func TestUplinkCloseEndsCalls(t *testing.T) {
	up, agent, _ := openTestUplink(t)
	received := make(chan error, 1)
	go func() {
		_, err := up.Receive(make([]byte, brig.UplinkMTU))
		received <- err
	}()
	if err := up.Send([]byte("x")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := up.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := <-received; !errors.Is(err, net.ErrClosed) {
		t.Errorf("receive: %v", err)
	}
	if err := up.Send([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("send: %v", err)
	}
	if _, err := io.ReadAll(agent); err != nil {
		t.Errorf("the agent is not told: %v", err)
	}
}

// The wait for an unresponsive guest ends with the caller's context.
func TestUplinkWaitEndsWithContext(t *testing.T) {
	ours, theirs := net.Pipe()
	defer theirs.Close()
	go io.Copy(io.Discard, theirs)
	g := &Guest{Dial: func(context.Context) (net.Conn, error) { return ours, nil }}
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(50*time.Millisecond, func() { cancel(cause) })
	if _, err := g.Uplink(ctx, nil); !errors.Is(err, cause) {
		t.Errorf("%v, want %v", err, cause)
	}
}
