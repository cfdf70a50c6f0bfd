package engine_test

import (
	"context"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/provider/fake"
)

// toNet allows connections to the network of the tests.
var toNet = brig.Egress{Rules: []brig.EgressRule{{CIDR: "203.0.113.0/24", Ports: []int{9}}}}

// outside is the remote end of all connections of an engine's sandboxes. It counts the bytes that
// it receives.
type outside struct{ got atomic.Int64 }

func (s *outside) Write(p []byte) (int, error) {
	s.got.Add(int64(len(p)))
	return len(p), nil
}

func (s *outside) options(o *engine.Options) {
	o.Egress.AllowWide = true
	o.Egress.Dial = func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() { _, _ = io.Copy(s, theirs) }()
		return ours, nil
	}
}

// segment returns a TCP segment from a sandbox to 203.0.113.5.
func segment(flags header.TCPFlags, seq, ack uint32, data []byte) []byte {
	from := tcpip.AddrFrom4(brig.UplinkNetwork.Addr().As4())
	to := tcpip.AddrFrom4(netip.MustParseAddr("203.0.113.5").As4())
	size := header.TCPMinimumSize + len(data)
	b := make([]byte, header.IPv4MinimumSize+size)
	ip := header.IPv4(b)
	ip.Encode(&header.IPv4Fields{TotalLength: uint16(len(b)), TTL: 64, Protocol: uint8(header.TCPProtocolNumber), SrcAddr: from, DstAddr: to})
	ip.SetChecksum(^ip.CalculateChecksum())
	tcp := header.TCP(ip.Payload())
	copy(tcp[header.TCPMinimumSize:], data)
	tcp.Encode(&header.TCPFields{SrcPort: 4000, DstPort: 9, SeqNum: seq, AckNum: ack, DataOffset: header.TCPMinimumSize, Flags: flags, WindowSize: 65535})
	sum := header.PseudoHeaderChecksum(header.TCPProtocolNumber, from, to, uint16(size))
	tcp.SetChecksum(^tcp.CalculateChecksum(checksum.Checksum(data, sum)))
	return b
}

// upload sends n bytes to the outside, like a program of a sandbox, and waits until they have
// arrived.
func (s *outside) upload(t *testing.T, link *fake.Link, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	reply := func() header.TCP {
		p, err := link.Receive(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return header.TCP(header.IPv4(p).Payload())
	}
	if err := link.Send(segment(header.TCPFlagSyn, 1, 0, nil)); err != nil {
		t.Fatal(err)
	}
	ack := reply().SequenceNumber() + 1
	if err := link.Send(segment(header.TCPFlagAck|header.TCPFlagPsh, 2, ack, make([]byte, n))); err != nil {
		t.Fatal(err)
	}
	for s.got.Load() < int64(n) {
		if ctx.Err() != nil {
			t.Fatalf("%d of %d bytes have arrived", s.got.Load(), n)
		}
		time.Sleep(time.Millisecond)
	}
}

// spentEgress returns the bytes that are charged to the tenant.
func (h *fixture) spentEgress(t *testing.T, ctx context.Context) int64 {
	t.Helper()
	lines, err := h.TenantUsage(ctx, brig.UsageQuery{})
	if err != nil || len(lines) != 1 {
		t.Fatalf("the usage is %+v, %v", lines, err)
	}
	return lines[0].Egress
}

// The traffic of a copy is charged to its tenant while the copy is being made, even if
// the fork then fails.
func TestForkedTrafficCounts(t *testing.T) {
	var net outside
	h := newFixture(t, net.options)
	ctx := withRole(t, brig.Operator)
	box, err := h.Create(ctx, brig.Spec{Name: "one", Egress: toNet, Env: map[string]string{"BRIG_RESTORED": "sleep 20"}})
	if err != nil {
		t.Fatal(err)
	}
	const n = 1000
	calls, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := h.Fork(calls, "one", brig.ForkSpec{})
		ended <- err
	}()
	var link *fake.Link
	for end := time.Now().Add(time.Minute); link == nil; time.Sleep(time.Millisecond) {
		for _, id := range h.provider.Machines() {
			if id != box.ID {
				link = h.provider.Link(id)
			}
		}
		if time.Now().After(end) {
			t.Fatal("the copy has no network")
		}
	}
	net.upload(t, link, n)
	if got := h.spentEgress(t, ctx); got != n {
		t.Errorf("%d bytes are charged while the copy is made, want %d", got, n)
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("the fork was to fail")
	}
	if got := h.spentEgress(t, ctx); got != n {
		t.Errorf("%d bytes are charged after the fork, want %d", got, n)
	}
	if machines := h.provider.Machines(); len(machines) != 1 {
		t.Errorf("there are the machines %v", machines)
	}
}

// A fork does not lose the traffic of the original since the last count.
func TestForkCountsOriginal(t *testing.T) {
	var net outside
	h := newFixture(t, net.options)
	ctx := withRole(t, brig.Operator)
	box, err := h.Create(ctx, brig.Spec{Name: "one", Egress: toNet})
	if err != nil {
		t.Fatal(err)
	}
	const n = 1000
	net.upload(t, h.provider.Link(box.ID), n)
	if _, err := h.Fork(ctx, "one", brig.ForkSpec{}); err != nil {
		t.Fatal(err)
	}
	if got := h.spentEgress(t, ctx); got != n {
		t.Errorf("%d bytes are charged, want %d", got, n)
	}
}
