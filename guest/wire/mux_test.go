package wire

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"
)

// pair returns the two sides of a mux over a pipe.
func pair(t *testing.T) (host, agent *Mux) {
	t.Helper()
	a, b := net.Pipe()
	host, agent = NewMux(a, false), NewMux(b, true)
	t.Cleanup(func() { host.Close(); agent.Close() })
	return host, agent
}

// openConn opens a connection and returns both ends.
func openConn(t *testing.T, host, agent *Mux) (here, there net.Conn) {
	t.Helper()
	here, err := host.Open()
	if err != nil {
		t.Fatal(err)
	}
	if there, err = agent.Accept(); err != nil {
		t.Fatal(err)
	}
	return here, there
}

func TestMuxTransfersData(t *testing.T) {
	host, agent := pair(t)
	data := bytes.Repeat([]byte("0123456789abcdef"), 128<<10) // eight windows
	var all sync.WaitGroup
	for range 8 {
		hostConn, agentConn := openConn(t, host, agent)
		all.Go(func() {
			_, _ = io.Copy(agentConn, agentConn)
			agentConn.(interface{ CloseWrite() error }).CloseWrite()
		})
		all.Go(func() {
			_, _ = hostConn.Write(data)
			hostConn.(interface{ CloseWrite() error }).CloseWrite()
		})
		all.Go(func() {
			got, err := io.ReadAll(hostConn)
			if err != nil || !bytes.Equal(got, data) {
				t.Errorf("%d of %d bytes came back: %v", len(got), len(data), err)
			}
		})
	}
	all.Wait()
}

// An unread connection fills up without blocking the other connections.
func TestMuxConnectionsAreIndependent(t *testing.T) {
	host, agent := pair(t)
	stuck, _ := openConn(t, host, agent)
	if err := stuck.SetWriteDeadline(time.Now().Add(300 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	n, err := stuck.Write(make([]byte, 2*muxWindow))
	if n != muxWindow || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%d bytes were taken, %v", n, err)
	}
	hostConn, agentConn := openConn(t, host, agent)
	go func() { _, _ = hostConn.Write([]byte("through")) }()
	b := make([]byte, 7)
	if _, err := io.ReadFull(agentConn, b); err != nil || string(b) != "through" {
		t.Errorf("%q, %v", b, err)
	}
}

// Connections that are opened concurrently arrive in the order of their
// numbers, as the other side requires.
func TestMuxOpensConcurrently(t *testing.T) {
	host, agent := pair(t)
	const n = 200
	go func() {
		for range n {
			if _, err := agent.Accept(); err != nil {
				return
			}
		}
	}()
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			if _, err := host.Open(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if err := agent.Err(); err != nil {
		t.Errorf("it is over: %v", err)
	}
}

func TestMuxEndsConnections(t *testing.T) {
	host, agent := pair(t)
	hostConn, agentConn := openConn(t, host, agent)
	if _, err := agentConn.Write([]byte("last words")); err != nil {
		t.Fatal(err)
	}
	agentConn.Close()
	if got, err := io.ReadAll(hostConn); err != nil || string(got) != "last words" {
		t.Errorf("before the end came %q, %v", got, err)
	}
	if _, err := hostConn.Write([]byte("x")); err == nil {
		t.Error("who has closed still takes something")
	}
	hostConn.Close()
	if _, err := hostConn.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("read after close: %v", err)
	}

	hostConn, agentConn = openConn(t, host, agent)
	if err := hostConn.SetReadDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := hostConn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read past its deadline: %v", err)
	}
	agent.Close()
	if _, err := hostConn.Write(make([]byte, 1)); err == nil {
		t.Error("the mux is over, and something is sent")
	}
	if _, err := agentConn.Read(make([]byte, 1)); err == nil {
		t.Error("the mux is over, and something comes")
	}
	if _, err := host.Open(); err == nil {
		t.Error("the mux is over, and a connection is made")
	}
}

// FuzzMux checks that for any input neither side crashes or buffers more than
// the windows.
func FuzzMux(f *testing.F) {
	f.Add([]byte{muxOpen, 0, 0, 0, 1, 0, 0, 0, 0, muxData, 0, 0, 0, 1, 0, 0, 0, 2, 'h', 'i', muxEnd, 0, 0, 0, 1, 0, 0, 0, 0})
	f.Add([]byte{muxOpen, 0, 0, 0, 1, 0, 0, 0, 0, muxRoom, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{muxClose, 0, 0, 0, 9, 0, 0, 0, 0, 77})
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, accepts := range []bool{true, false} {
			m := NewMux(&scriptedStream{Reader: bytes.NewReader(b)}, accepts)
			var mine net.Conn
			if !accepts {
				mine, _ = m.Open()
			}
			<-m.Done()
			if m.Err() == nil {
				t.Error("it is over without a reason")
			}
			for len(m.accept) > 0 {
				checkWindow(t, <-m.accept)
			}
			if mine != nil {
				checkWindow(t, mine.(*muxConn))
			}
		}
	})
}

// checkWindow fails if a connection stores more data than its window.
func checkWindow(t *testing.T, c *muxConn) {
	t.Helper()
	if len(c.in) > muxWindow || c.room > muxWindow || c.room < 0 {
		t.Errorf("%d bytes are held, and there is room for %d", len(c.in), c.room)
	}
}

// scriptedStream is a stream that returns the given data to reads and accepts every
// write.
type scriptedStream struct{ *bytes.Reader }

func (*scriptedStream) Write(p []byte) (int, error) { return len(p), nil }
func (*scriptedStream) Close() error                { return nil }

// A connection no longer counts against the limit once the opening side has
// closed it, even if the accepting side keeps it open. Otherwise such
// connections would eventually use up the limit.
func TestMuxFreesClosedConnections(t *testing.T) {
	host, agent := pair(t)
	kept := make([]net.Conn, 0, muxStreams)
	for range muxStreams + 1 {
		hostConn, err := host.Open()
		if err != nil {
			t.Fatal(err)
		}
		agentConn, err := agent.Accept()
		if err != nil {
			t.Fatalf("after %d connections: %v", len(kept), err)
		}
		hostConn.Close()
		kept = append(kept, agentConn)
	}
	if n, err := kept[0].Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("one that is closed there: %d, %v", n, err)
	}
	if _, err := kept[0].Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("one that is closed there: %v", err)
	}
}
