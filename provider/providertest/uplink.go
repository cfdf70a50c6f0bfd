package providertest

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// datagram is an IPv4 packet with one UDP datagram.
type datagram struct {
	from, to         [4]byte
	fromPort, toPort uint16
	payload          string
}

func parseDatagram(p []byte) (d datagram, ok bool) {
	if len(p) < 28 || p[0] != 0x45 || p[9] != 17 || int(binary.BigEndian.Uint16(p[2:])) != len(p) {
		return d, false
	}
	d.from, d.to = [4]byte(p[12:]), [4]byte(p[16:])
	d.fromPort, d.toPort = binary.BigEndian.Uint16(p[20:]), binary.BigEndian.Uint16(p[22:])
	d.payload = string(p[28:])
	return d, checksum(p[:20]) == 0
}

// packet returns the datagram's packet, without a UDP checksum.
func (d datagram) packet() []byte {
	size := uint16(28 + len(d.payload))
	b := append([]byte{0x45, 0}, binary.BigEndian.AppendUint16(nil, size)...)
	b = append(b, 0, 0, 0x40, 0, 64, 17, 0, 0)
	b = append(append(b, d.from[:]...), d.to[:]...)
	binary.BigEndian.PutUint16(b[10:], checksum(b))
	b = binary.BigEndian.AppendUint16(b, d.fromPort)
	b = binary.BigEndian.AppendUint16(b, d.toPort)
	b = binary.BigEndian.AppendUint16(b, size-20)
	return append(append(b, 0, 0), d.payload...)
}

// checksum returns the IPv4 checksum, which is 0 for a header that includes a
// valid checksum.
func checksum(b []byte) uint16 {
	sum := uint32(0)
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// reply returns the response datagram.
func (d datagram) reply(payload string) datagram {
	return datagram{d.to, d.from, d.toPort, d.fromPort, payload}
}

// question returns the packet that an instance sends in these tests.
func question() datagram {
	return datagram{
		brig.UplinkNetwork.Addr().As4(), brig.UplinkGateway.As4(), 4000, 53, "question\n",
	}
}

// questionCommand returns a command that sends the question and prints the
// response, or reports that there is no network.
func questionCommand(h Harness) brig.Command {
	if h.Real {
		return script(`{ exec 3<>/dev/udp/` + brig.UplinkGateway.String() + `/53 && echo question >&3; } 2>&1 || exit 7
			timeout 8 head -n 1 <&3`) // the shell's read would consume a datagram after one byte
	}
	return portable("packet " + hex.EncodeToString(question().packet()))
}

// checkAnswer checks the output of questionCommand.
func checkAnswer(t *testing.T, h Harness, a execResult, payload string) {
	t.Helper()
	want := payload
	if !h.Real {
		want = hex.EncodeToString(question().reply(payload).packet()) + "\n"
	}
	if a.ExitCode != 0 || a.out != want {
		t.Errorf("the machine was answered %q, exit code %d, want %q", a.out, a.ExitCode, want)
	}
}

// unreachable checks that an instance has no network.
func unreachable(t *testing.T, h Harness, in brig.Instance) {
	t.Helper()
	// The interface is removed shortly after the call.
	for end := time.Now().Add(waitTimeout); ; time.Sleep(20 * time.Millisecond) {
		a := run(t, in, questionCommand(h))
		if a.ExitCode == 7 && strings.Contains(a.out, "Network is unreachable") {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("there still is a network: exit code %d, %q", a.ExitCode, a.out)
		}
	}
}

// withRules sets egress rules. Providers may create instances without rules so
// that they can never have a network link.
func withRules(s *brig.Spec) { s.Egress.Rules = []brig.EgressRule{{Host: "example.com"}} }

func uplink(t *testing.T, in brig.Instance, authority string) brig.Uplink {
	t.Helper()
	up, err := in.Uplink(t.Context(), []byte(authority))
	if err != nil {
		t.Fatalf("uplink: %v", err)
	}
	t.Cleanup(func() { up.Close() })
	return up
}

// serve responds to questions until the link ends. The channel receives the
// link's error.
func serve(up brig.Uplink, payload string) <-chan error {
	ended := make(chan error, 1)
	go func() {
		b := make([]byte, brig.UplinkMTU)
		for {
			n, err := up.Receive(b)
			if err == nil && n == 0 {
				err = errors.New("a packet of no length")
			}
			if err != nil {
				ended <- err
				return
			}
			d, ok := parseDatagram(b[:n])
			if q := question(); ok && d.from == q.from && d.to == q.to && d.toPort == q.toPort && d.payload == q.payload {
				if err := up.Send(d.reply(payload).packet()); err != nil {
					ended <- err
					return
				}
			}
		}
	}()
	return ended
}

func checkEnded(t *testing.T, ended <-chan error) {
	t.Helper()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("it ended without an error")
		}
	case <-time.After(waitTimeout):
		t.Fatal("Receive still waits")
	}
}

// testNoUplink checks that an instance without support for network links has no
// network, and that its notes report it.
func testNoUplink(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	if _, err := in.Uplink(t.Context(), nil); brig.KindOf(err) != brig.Unimplemented {
		t.Errorf("an uplink that cannot be: %v", err)
	}
	unreachable(t, h, in)
}

func testUplink(t *testing.T, h Harness) {
	_, in := create(t, h, withRules)
	unreachable(t, h, in) // the control for the following checks
	up := uplink(t, in, "")
	ended := serve(up, "one\n")
	checkAnswer(t, h, run(t, in, questionCommand(h)), "one\n")
	if err := up.Send(nil); err == nil {
		t.Error("a packet of no length was sent")
	}
	if err := up.Send(make([]byte, brig.UplinkMTU+1)); err == nil {
		t.Error("a packet that is too large was sent")
	}
	// The instance ignores bytes that are not IPv4 packets.
	for _, invalid := range [][]byte{{0}, {0x45}, bytes.Repeat([]byte{0x60}, 40), make([]byte, brig.UplinkMTU)} {
		if err := up.Send(invalid); err != nil {
			t.Errorf("send %d odd bytes: %v", len(invalid), err)
		}
	}
	if h.Real {
		checkAnswer(t, h, run(t, in, questionCommand(h)), "one\n")
	}
	for range 2 {
		if err := up.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	checkEnded(t, ended)
	if _, err := up.Receive(make([]byte, brig.UplinkMTU)); err == nil {
		t.Error("Receive after Close")
	}
	if err := up.Send(question().packet()); err == nil {
		t.Error("Send after Close")
	}
	unreachable(t, h, in)
}

func testUplinkReplaced(t *testing.T, h Harness) {
	_, in := create(t, h, withRules)
	first := uplink(t, in, "")
	ended := serve(first, "one\n")
	checkAnswer(t, h, run(t, in, questionCommand(h)), "one\n")
	second := uplink(t, in, "")
	checkEnded(t, ended)
	serve(second, "two\n")
	checkAnswer(t, h, run(t, in, questionCommand(h)), "two\n")
	if err := first.Close(); err != nil { // must not affect the instance's new link
		t.Error(err)
	}
	checkAnswer(t, h, run(t, in, questionCommand(h)), "two\n")
}

func testUplinkEnd(t *testing.T, h Harness) {
	_, in := create(t, h, withRules)
	up := uplink(t, in, "")
	ended := serve(up, "one\n")
	checkAnswer(t, h, run(t, in, questionCommand(h)), "one\n")
	if err := in.Stop(t.Context(), 0, brig.Killed); err != nil {
		t.Fatal(err)
	}
	checkEnded(t, ended)
	if err := up.Send(question().packet()); err == nil {
		t.Error("Send to a machine that has ended")
	}
	if _, err := in.Uplink(t.Context(), nil); err == nil {
		t.Error("an uplink of a machine that has ended")
	}
}

// testUplinkRecovered checks that the network link of a restarted server
// replaces a link that the earlier server still has open.
func testUplinkRecovered(t *testing.T, h Harness) {
	id, in := create(t, h, withRules)
	ended := serve(uplink(t, in, ""), "one\n")
	next := h.Provider
	if h.Next != nil {
		next = h.Next(t)
	}
	recovered, err := next.Recover(t.Context(), id, in.Handle())
	if err != nil {
		t.Fatal(err)
	}
	serve(uplink(t, recovered, ""), "two\n")
	checkEnded(t, ended)
	checkAnswer(t, h, run(t, recovered, questionCommand(h)), "two\n")
}

// testUplinkBound checks that an instance that was created in advance gets its
// network link when it is bound.
func testUplinkBound(t *testing.T, h Harness) {
	_, in := create(t, h, func(s *brig.Spec) { s.Name, s.Ephemeral, s.Blank = "", true, true })
	spec := h.spec()
	withRules(&spec)
	if err := in.Bind(t.Context(), spec, time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	serve(uplink(t, in, ""), "one\n")
	checkAnswer(t, h, run(t, in, questionCommand(h)), "one\n")
}
