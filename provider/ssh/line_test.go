package ssh

import (
	"context"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/provider/ssh/sshtest"
)

// farLine is a line to a machine of the test, whose n-th connection is served by
// f, with the sessions that are asked for.
func farLine(t *testing.T, f func(n int32, c net.Conn, asked ssh.NewChannel)) *line {
	t.Helper()
	private, public := sshtest.Key(t, "")
	signer, err := ssh.ParsePrivateKey([]byte(private))
	if err != nil {
		t.Fatal(err)
	}
	settings := &ssh.ServerConfig{PasswordCallback: func(ssh.ConnMetadata, []byte) (*ssh.Permissions, error) { return nil, nil }}
	settings.AddHostKey(signer)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	var n atomic.Int32
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { c.Close() })
			go func() {
				_, asked, requests, err := ssh.NewServerConn(c, settings)
				if err != nil {
					return
				}
				go ssh.DiscardRequests(requests)
				at := n.Add(1)
				for a := range asked {
					f(at, c, a)
				}
			}()
		}
	}()
	return &line{
		dir: t.TempDir(), called: func(brig.Call) {},
		config: &Config{
			Host: "127.0.0.1", Port: l.Addr().(*net.TCPAddr).Port, Username: "u", Password: "p",
			Fingerprint: ssh.FingerprintSHA256(public), Timeout: 10,
		},
	}
}

// Nobody waits longer for a session than they want to.
func TestNoSession(t *testing.T) {
	l := farLine(t, func(int32, net.Conn, ssh.NewChannel) {}) // it says nothing
	l.config.Timeout = 120
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	begin := time.Now()
	if _, err := l.start(ctx, "x"); brig.KindOf(err) != brig.ConnectionFailed || time.Since(begin) > time.Minute {
		t.Errorf("%v after %v", err, time.Since(begin))
	}
}

// A connection that ends when it is used is not what the next one fails of.
func TestConnectionEnds(t *testing.T) {
	l := farLine(t, func(n int32, c net.Conn, asked ssh.NewChannel) {
		if n == 1 {
			c.Close()
			return
		}
		channel, requests, err := asked.Accept()
		if err != nil {
			return
		}
		for r := range requests {
			_ = r.Reply(true, nil)
			_, _ = io.WriteString(channel, "here")
			_ = channel.Close()
		}
	})
	s, err := l.start(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(s); string(b) != "here" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
}

// A machine that has no more sessions is not asked again.
func TestSessionRefused(t *testing.T) {
	var asked atomic.Int32
	l := farLine(t, func(_ int32, _ net.Conn, a ssh.NewChannel) {
		asked.Add(1)
		_ = a.Reject(ssh.ResourceShortage, "too many")
	})
	if _, err := l.start(t.Context(), "x"); brig.KindOf(err) != brig.ConnectionFailed || asked.Load() != 1 {
		t.Errorf("%v after %d times", err, asked.Load())
	}
}
