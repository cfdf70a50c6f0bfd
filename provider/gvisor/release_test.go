package gvisor

import (
	"encoding/json"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/brig-run/brig/guest/wire"
)

// TestReleaseSkipsLateResponses verifies that a late response of the agent to an
// earlier request is not mistaken for the response to the current request.
func TestReleaseSkipsLateResponses(t *testing.T) {
	ends := socketPair(t, unix.SOCK_SEQPACKET)
	defer ends[0].Close()
	defer ends[1].Close()
	respond := func(number uint32, holders ...wire.Holder) {
		b, err := json.Marshal(wire.Release{Number: number, Holders: holders})
		if err != nil {
			t.Error(err)
		}
		if _, err := ends[1].Write(b); err != nil {
			t.Error(err)
		}
	}
	m := &machine{control: ends[0], lastRequest: 6}
	respond(5)
	respond(6)
	go func() {
		b := make([]byte, 2*wire.MaxControl)
		n, err := ends[1].Read(b)
		if op, number, ok := wire.ParseControlRequest(b[:n]); err != nil || !ok || op != wire.ControlRelease || number != 7 {
			t.Errorf("the agent is asked %x, %v", b[:n], err)
		}
		respond(7, wire.Holder{PID: 12, Name: "sleep"})
	}()
	holders, err := m.requestDescriptorClose(wire.ControlRelease)
	if err != nil || len(holders) != 1 || holders[0].PID != 12 {
		t.Errorf("the answer is %v, %v", holders, err)
	}
}
