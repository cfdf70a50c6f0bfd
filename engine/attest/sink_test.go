package attest

import (
	"net"
	"testing"
)

// The sink reports whether it received a connection.
func TestSinkDetectsConnections(t *testing.T) {
	s, own := openSink(t.Context())
	defer s.close()
	if len(own) != 1 || s.wasReached() {
		t.Fatalf("at %v, reached before anybody came", own)
	}
	c, err := net.Dial("tcp", own[0].String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if !s.wasReached() {
		t.Error("somebody came and was not seen")
	}
	if (sink{}).wasReached() {
		t.Error("what listens on nothing was reached")
	}
}
