package guest

import (
	"strings"
	"testing"
)

// FuzzMessage verifies that the frames of an agent with parts of messages are joined to
// the same messages.
func FuzzMessage(f *testing.F) {
	f.Add([]byte("one\ntwo\n"), byte(1))
	f.Add([]byte("\n\n"), byte(0))
	f.Fuzz(func(t *testing.T, said []byte, part byte) {
		c := &Carried{}
		var got, want []string
		for line := range strings.SplitAfterSeq(string(said), "\n") {
			whole, ok := strings.CutSuffix(line, "\n")
			if ok {
				want = append(want, whole)
			}
			// A frame ends with the line, as in the agent.
			for rest := []byte(line); len(rest) > 0; {
				n := min(len(rest), int(part)+1)
				message, complete, err := c.message(rest[:n])
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
			t.Errorf("received %q of %q", got, said)
		}
	})
}
