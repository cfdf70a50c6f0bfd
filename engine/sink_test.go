package engine

import (
	"net"
	"testing"
)

// Whoever connects to the sink is seen, and nobody is when nobody does.
func TestSink(t *testing.T) {
	s, own := listen(t.Context())
	defer s.close()
	if len(own) != 1 || s.reached() {
		t.Fatalf("at %v, reached before anybody came", own)
	}
	c, err := net.Dial("tcp", own[0].String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if !s.reached() {
		t.Error("somebody came and was not seen")
	}
	if (sink{}).reached() {
		t.Error("what listens on nothing was reached")
	}
}
