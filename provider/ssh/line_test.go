package ssh

import (
	"context"
	"io"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/provider/ssh/sshtest"
)

// newTestDialer returns a dialer for a host in the test process. f serves each
// requested session, and n is the number of the session's connection.
func newTestDialer(t *testing.T, f func(n int32, c net.Conn, newChannel ssh.NewChannel)) *dialer {
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
				_, channels, requests, err := ssh.NewServerConn(c, settings)
				if err != nil {
					return
				}
				go ssh.DiscardRequests(requests)
				at := n.Add(1)
				for a := range channels {
					f(at, c, a)
				}
			}()
		}
	}()
	return &dialer{
		dir: t.TempDir(), called: func(brig.Call) {},
		config: &Config{
			Host: "127.0.0.1", Port: l.Addr().(*net.TCPAddr).Port, Username: "u", Password: "p",
			Fingerprint: ssh.FingerprintSHA256(public), Timeout: 10,
		},
	}
}

// TestSessionEndsWithContext verifies that a caller does not wait for a
// session longer than its context.
func TestSessionEndsWithContext(t *testing.T) {
	l := newTestDialer(t, func(int32, net.Conn, ssh.NewChannel) {}) // never responds
	l.config.Timeout = 120
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	begin := time.Now()
	if _, err := l.start(ctx, "x"); brig.KindOf(err) != brig.ConnectionFailed || time.Since(begin) > time.Minute {
		t.Errorf("%v after %v", err, time.Since(begin))
	}
}

// TestReconnectsForNextSession verifies that a connection that ends during use
// does not fail the next session.
func TestReconnectsForNextSession(t *testing.T) {
	l := newTestDialer(t, func(n int32, c net.Conn, newChannel ssh.NewChannel) {
		if n == 1 {
			c.Close()
			return
		}
		channel, requests, err := newChannel.Accept()
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

// TestRefusedSessionIsNotRetried verifies that a session that the host refuses
// is not requested again.
func TestRefusedSessionIsNotRetried(t *testing.T) {
	var attempts atomic.Int32
	l := newTestDialer(t, func(_ int32, _ net.Conn, a ssh.NewChannel) {
		attempts.Add(1)
		_ = a.Reject(ssh.ResourceShortage, "too many")
	})
	if _, err := l.start(t.Context(), "x"); brig.KindOf(err) != brig.ConnectionFailed || attempts.Load() != 1 {
		t.Errorf("%v after %d times", err, attempts.Load())
	}
}

// TestScriptOutputIsLimited verifies that endless output of a host uses only a
// limited amount of the server's memory. The control writes less.
func TestScriptOutputIsLimited(t *testing.T) {
	for name, stream := range map[string]func(ssh.Channel) io.Writer{
		"output": func(c ssh.Channel) io.Writer { return c },
		"errors": func(c ssh.Channel) io.Writer { return c.Stderr() },
	} {
		for size, want := range map[int]brig.Kind{1 << 10: "", 256 << 20: brig.Unavailable} {
			var sent atomic.Int64
			l := newTestDialer(t, func(_ int32, _ net.Conn, newChannel ssh.NewChannel) {
				channel, requests, err := newChannel.Accept()
				if err != nil {
					return
				}
				go func() {
					for r := range requests {
						_ = r.Reply(true, nil)
						if r.Type != "exec" {
							continue
						}
						to, block := stream(channel), make([]byte, 1<<10)
						for sent.Load() < int64(size) {
							n, err := to.Write(block)
							if sent.Add(int64(n)); err != nil {
								return
							}
						}
						_, _ = channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{0}))
						_ = channel.Close()
					}
				}()
			})
			l.config.Timeout = 60
			out, err := l.run(t.Context(), "x", nil)
			if brig.KindOf(err) != want || len(out) > maxWritten || sent.Load() > 64<<20 {
				t.Errorf("%s of %d bytes: %d were kept and %d sent: %v", name, size, len(out), sent.Load(), err)
			}
		}
	}
}

// TestMetadataAddressIsRefused verifies that the provider does not connect to a host name
// that resolves to a cloud's metadata service. The control is this host, which
// all other tests use.
func TestMetadataAddressIsRefused(t *testing.T) {
	for _, host := range []string{"169.254.169.254", "fd00:ec2::254", "0.0.0.0", "fe80::1"} {
		l := &dialer{dir: t.TempDir(), called: func(brig.Call) {}, config: &Config{
			Host: host, Port: 22, Username: "u", Password: "p", Fingerprint: "SHA256:x", Timeout: 5,
		}}
		if _, err := l.run(t.Context(), "x", nil); brig.KindOf(err) != brig.ConnectionFailed || brig.AsError(err).Field != "host" {
			t.Errorf("%s: %v", host, err)
		}
	}
}

// TestConnectEndsWithContext verifies that a caller that waits for another caller's
// connection attempt stops waiting when its own context ends.
func TestConnectEndsWithContext(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // never responds
	if err != nil {
		t.Fatal(err)
	}
	l := newTestDialer(t, nil)
	l.config.Port, l.config.Timeout = silent.Addr().(*net.TCPAddr).Port, 60
	long := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, err := l.connect(ctx)
		long <- err
	}()
	t.Cleanup(func() { <-long })
	c, err := silent.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	p := &Provider{dialer: l, config: *l.config, env: brig.ProviderEnv{Agent: os.Args[0]}}
	copying := make(chan error, 1)
	go func() {
		_, err := p.copyAgent(ctx)
		copying <- err
	}()
	t.Cleanup(func() {
		cancel()
		silent.Close()
		<-copying
	})
	for name, call := range map[string]func(context.Context) error{
		"connect":    func(ctx context.Context) error { _, err := l.connect(ctx); return err },
		"copy agent": func(ctx context.Context) error { _, err := p.copyAgent(ctx); return err },
	} {
		time.Sleep(100 * time.Millisecond) // the other callers wait
		short, done := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer done()
		result := make(chan error, 1)
		go func() { result <- call(short) }()
		select {
		case err := <-result:
			if brig.KindOf(err) != brig.ConnectionFailed {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(5 * time.Second):
			t.Errorf("%s: it still waits", name)
		}
	}
}

// TestCloseDuringConnect verifies that a connection that is opened while its provider
// closes does not remain open, and that no connection is opened later.
func TestCloseDuringConnect(t *testing.T) {
	l := newTestDialer(t, func(int32, net.Conn, ssh.NewChannel) {})
	l.called = func(brig.Call) { // runs when the connection is open but not yet stored
		if err := l.close(); err != nil {
			t.Error(err)
		}
	}
	for _, when := range []string{"during the close", "after it"} {
		if c, err := l.connect(t.Context()); err == nil {
			t.Errorf("%s: connected", when)
			_ = c.Close()
		}
	}
}
