package guest

import (
	"net"
	"strings"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest/wire"
)

// FuzzMessage verifies that messages are restored from the frames into which an agent splits them.
func FuzzMessage(f *testing.F) {
	f.Add([]byte("one\ntwo\n"), byte(1))
	f.Add([]byte("\n\n"), byte(0))
	f.Fuzz(func(t *testing.T, data []byte, part byte) {
		c := &CarriedProcess{}
		var got, want []string
		for line := range strings.SplitAfterSeq(string(data), "\n") {
			whole, ok := strings.CutSuffix(line, "\n")
			if ok {
				want = append(want, whole)
			}
			// A frame ends at the end of a line, like the agent's frames.
			for rest := []byte(line); len(rest) > 0; {
				n := min(len(rest), int(part)+1)
				message, complete, err := c.appendMessage(rest[:n])
				if err != nil {
					t.Fatal(err)
				}
				if complete {
					got = append(got, string(message))
				}
				rest = rest[n:]
			}
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") || len(got) != len(want) {
			t.Errorf("received %q of %q", got, data)
		}
	})
}

// A driver sends a position before a displayed value, even if the agent holds its descriptors. The
// position is not returned as a message.
func TestCarriedOutputSkipsPositions(t *testing.T) {
	agent, host := net.Pipe()
	defer agent.Close()
	c := &CarriedProcess{output: host, frames: wire.NewReader(host)}
	go func() {
		for _, line := range []string{"=3,0\n", "one\n", "=x\n"} {
			_ = wire.Write(agent, wire.TypeResult, []byte(line)) // the test ends without it
		}
	}()
	for _, want := range []string{"one", "=x"} {
		if from, got, err := c.Receive(); from != brig.FromMessage || string(got) != want || err != nil {
			t.Errorf("received %q of %v, %v; want %q", got, from, err, want)
		}
	}
}
