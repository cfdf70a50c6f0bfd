package guest

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/brig-run/brig"
)

// Ahead returns messages before they are received, even if they are partly buffered already. It
// does not change the result of Receive.
func TestAheadReturnsUnreceivedMessages(t *testing.T) {
	s, p := newTestStream(t)
	look := func(when, want string, over bool) {
		t.Helper()
		sent, ended := s.unreadMessages()
		if string(sent) != want || ended != over {
			t.Errorf("%s: %q, %v", when, sent, ended)
		}
	}
	look("at first", "", false)
	p.out("output")
	p.message("one\n")
	p.message("tw")
	look("nothing is received", "one\ntw", false)
	receive := func(want brig.From, text string) {
		t.Helper()
		from, b, err := s.receive()
		if err != nil || from != want || string(b) != text {
			t.Errorf("received %v %q, %v, want %q", from, b, err, text)
		}
	}
	receive(brig.FromStdout, "output")
	look("the message is due", "one\ntw", false)
	p.message("o\n" + strings.Repeat("x", 1000))
	look("more has come", "one\ntwo\n"+strings.Repeat("x", 1000), false)
	receive(brig.FromMessage, "one")
	receive(brig.FromMessage, "two")
	look("two are received", strings.Repeat("x", 1000), false)
	p.message("\n")
	receive(brig.FromMessage, strings.Repeat("x", 1000))
	s.disconnect()
	look("the process has exited", "", true)
	s.close()
	look("the stream is closed", "", true)
}

// TestUnreadReturnsSizeOfSentMessages verifies that Unread returns the size of the sent messages
// until the process has read them.
func TestUnreadReturnsSizeOfSentMessages(t *testing.T) {
	s, side := newTestStream(t)
	p := &Process{stream: s}
	look := func(when string, want bool) {
		t.Helper()
		if n, ok := p.Unread(); !ok || n > 0 != want {
			t.Errorf("%s: %d, %v", when, n, ok)
		}
	}
	look("at first", false)
	if err := p.Send([]byte("order")); err != nil {
		t.Fatal(err)
	}
	look("before the process reads", true)
	b := make([]byte, 3)
	for _, unread := range []bool{true, false} {
		if n, err := unix.Read(side.fds[3], b); n != 3 || err != nil {
			t.Fatal(n, err)
		}
		look("after a read", unread)
	}
	s.close()
	if _, ok := p.Unread(); ok {
		t.Error("a closed stream knows what is unread")
	}
}
