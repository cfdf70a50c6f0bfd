package ssh

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest"
	"github.com/brig-run/brig/internal/outbound"
)

// dialer holds the connection to the host. It reconnects on demand if the
// connection was lost.
type dialer struct {
	config *Config
	dir    string // contains files that the SSH library needs
	called func(brig.Call)

	making guest.Attempts[*connection]

	mu     sync.Mutex // guards the fields below
	client *connection
	closed bool
}

// errClosed is the error of a dialer after its close.
var errClosed = fmt.Errorf("the provider is closed: %w", net.ErrClosed)

// connection is one connection to the host. ended is closed when the
// connection has ended.
type connection struct {
	*ssh.Client
	ended chan struct{}
}

// errKey is the error for a host that presents an unknown host key.
var errKey = errors.New("the host key is not the known one")

// connect returns the connection, and opens one if none exists. Concurrent callers wait
// for the same attempt, each until its context ends.
func (l *dialer) connect(ctx context.Context) (*connection, error) {
	if c := l.current(); c != nil {
		return c, nil
	}
	c, err := l.making.Do(ctx, time.Duration(l.config.Timeout)*time.Second, l.ensureOpen)
	if err != nil && ctx.Err() != nil {
		return nil, l.failureError(context.Cause(ctx))
	}
	return c, err
}

func (l *dialer) current() *connection {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.client
}

// ensureOpen returns the connection, and opens it if none exists.
func (l *dialer) ensureOpen(ctx context.Context) (*connection, error) {
	l.mu.Lock()
	c, closed := l.client, l.closed
	l.mu.Unlock()
	switch {
	case c != nil:
		return c, nil
	case closed:
		return nil, l.failureError(errClosed)
	}
	begin := time.Now()
	client, err := l.dial(ctx)
	call := brig.Call{Operation: "connect", Seconds: time.Since(begin).Seconds()}
	if err == nil {
		call.Status = 200
	}
	l.called(call)
	if err != nil {
		return nil, l.failureError(err)
	}
	c = &connection{client, make(chan struct{})}
	l.mu.Lock()
	closed = l.closed
	if !closed {
		l.client = c
	}
	l.mu.Unlock()
	if closed { // the dialer was closed during the attempt
		_ = client.Close()
		return nil, l.failureError(errClosed)
	}
	go l.watch(c)
	go keepAlive(client)
	return c, nil
}

// session opens a session. If the current connection has ended, session uses a
// new connection.
func (l *dialer) session(ctx context.Context) (*ssh.Session, error) {
	var err error
	for range 2 {
		var c *connection
		if c, err = l.connect(ctx); err != nil {
			return nil, err
		}
		var s *ssh.Session
		if s, err = c.session(ctx); err == nil {
			return s, nil
		}
		if _, refused := errors.AsType[*ssh.OpenChannelError](err); refused || ctx.Err() != nil {
			break
		}
		_ = c.Close() // the connection is unusable
		<-c.ended
	}
	return nil, l.failureError(err)
}

// session opens a session. If the connection ends at that moment, the library
// never returns, so this function does not wait for it.
func (c *connection) session(ctx context.Context) (*ssh.Session, error) {
	var s *ssh.Session
	var err error
	begun := make(chan struct{})
	go func() {
		defer close(begun)
		s, err = c.NewSession()
	}()
	select {
	case <-begun:
		return s, err
	case <-c.ended:
		return nil, fmt.Errorf("the connection has ended: %w", io.ErrUnexpectedEOF)
	case <-ctx.Done():
		go func() {
			if <-begun; err == nil {
				_ = s.Close() // the caller has stopped waiting
			}
		}()
		return nil, context.Cause(ctx)
	}
}

func (l *dialer) dial(ctx context.Context) (*ssh.Client, error) {
	address := net.JoinHostPort(l.config.Host, strconv.Itoa(l.config.Port))
	settings, err := l.settings(address)
	if err != nil {
		return nil, err
	}
	conn, err := dial(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	c, channels, requests, err := ssh.NewClientConn(conn, address, settings)
	if !stop() && err != nil {
		err = errors.Join(context.Cause(ctx), err)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return ssh.NewClient(c, channels, requests), nil
}

// dial connects to the host. Private addresses are allowed, because the host
// key is verified, but addresses of cloud metadata services are not.
var dial = outbound.NewDialFunc(net.Dialer{}, brig.CheckConfiguredAddr)

// settings returns the configuration with which the host and this server
// authenticate each other.
func (l *dialer) settings(address string) (*ssh.ClientConfig, error) {
	c := &ssh.ClientConfig{User: l.config.Username, ClientVersion: "SSH-2.0-brig"}
	if l.config.PrivateKey != "" {
		signer, err := l.config.signer()
		if err != nil {
			return nil, err
		}
		c.Auth = append(c.Auth, ssh.PublicKeys(signer))
	}
	if l.config.Password != "" {
		c.Auth = append(c.Auth, ssh.Password(l.config.Password))
	}
	if l.config.Fingerprint != "" {
		c.HostKeyCallback = func(_ string, _ net.Addr, key ssh.PublicKey) error {
			if ssh.FingerprintSHA256(key) != l.config.Fingerprint {
				return fmt.Errorf("%w: it is %s", errKey, ssh.FingerprintSHA256(key))
			}
			return nil
		}
		return c, nil
	}
	return c, l.acceptKnownHost(address, c)
}

// acceptKnownHost makes the client accept only the host's known host keys.
func (l *dialer) acceptKnownHost(address string, c *ssh.ClientConfig) error {
	file := filepath.Join(l.dir, "known_hosts")
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	if err := os.WriteFile(file, []byte(l.config.KnownHosts+"\n"), 0o600); err != nil {
		return fmt.Errorf("write known hosts: %w", err)
	}
	check, err := knownhosts.New(file)
	if err != nil {
		return fmt.Errorf("%w: read known_hosts: %w", errKey, err)
	}
	// A host may have host keys of several types, and must present one that is
	// in known_hosts. To list the known keys, check a dummy key: the library's
	// error contains them.
	probe, err := ssh.NewPublicKey(make(ed25519.PublicKey, ed25519.PublicKeySize))
	if err != nil {
		return err
	}
	var unknown *knownhosts.KeyError
	if errors.As(check(address, &net.TCPAddr{}, probe), &unknown) {
		for _, k := range unknown.Want {
			c.HostKeyAlgorithms = append(c.HostKeyAlgorithms, algorithms(k.Key.Type())...)
		}
	}
	if len(c.HostKeyAlgorithms) == 0 {
		return fmt.Errorf("%w: known_hosts has none of %s", errKey, address)
	}
	c.HostKeyCallback = func(name string, remote net.Addr, key ssh.PublicKey) error {
		if err := check(name, remote, key); err != nil {
			return fmt.Errorf("%w: %w", errKey, err)
		}
		return nil
	}
	return nil
}

func algorithms(key string) []string {
	if key == ssh.KeyAlgoRSA {
		return []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256}
	}
	return []string{key}
}

// failureError returns the error for a connection that could not be opened.
func (l *dialer) failureError(err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	field := func(kind brig.Kind, name, hint, format string, args ...any) error {
		e := brig.Errorf(kind, format, args...).WithHint("%s", hint).Because(err)
		e.Field = name
		return e
	}
	var timeout net.Error
	refusal, refused := errors.AsType[*outbound.Refusal](err)
	switch {
	case refused:
		return field(brig.ConnectionFailed, "host", "give the address of a machine", "%s is where it may not be: %s", l.config.Host, brig.AsError(refusal.Err).Message)
	case errors.Is(err, errKey), strings.Contains(err.Error(), "no common algorithm for host key"):
		name := "known_hosts"
		if l.config.Fingerprint != "" {
			name = "fingerprint"
		}
		return field(brig.ConnectionFailed, name, "somebody is between, or the machine has a new key: then change what is known of it", "%s is not the machine that is known", l.config.Host)
	case strings.Contains(err.Error(), "unable to authenticate"):
		name := "password"
		if l.config.PrivateKey != "" {
			name = "private_key"
		}
		return field(brig.InvalidConfig, name, "give another password or key: brig provider configure", "%s does not let %s in", l.config.Host, l.config.Username)
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return field(brig.ConnectionFailed, "", "see that it is up, and that nothing between drops connections", "%s does not answer in time", l.config.Host)
	default:
		return field(brig.ConnectionFailed, "", "see that it is up, and that host and port are right", "%s cannot be connected to", l.config.Host)
	}
}

// watch removes a connection that has ended.
func (l *dialer) watch(c *connection) {
	defer close(c.ended)
	_ = c.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.client == c {
		l.client = nil
	}
}

// keepAliveInterval is the interval between keep-alive requests, and the time
// within which the host must respond.
const keepAliveInterval = 15 * time.Second

// keepAlive closes a connection whose host does not respond.
func keepAlive(c *ssh.Client) {
	for {
		time.Sleep(keepAliveInterval)
		timer := time.AfterFunc(keepAliveInterval, func() { _ = c.Close() })
		_, _, err := c.SendRequest("keepalive@openssh.com", true, nil)
		timer.Stop()
		if err != nil {
			return
		}
	}
}

func (l *dialer) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.client == nil {
		return nil
	}
	err := l.client.Close()
	l.client = nil
	return err
}

// run runs a script with the host's shell and waits for its end.
func (l *dialer) run(ctx context.Context, script string, in io.Reader) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(l.config.Timeout)*time.Second)
	defer cancel()
	s, err := l.session(ctx)
	if err != nil {
		return "", err
	}
	hangUp := func() { _ = s.Close() } // the session may have ended already
	defer hangUp()
	defer context.AfterFunc(ctx, hangUp)()
	out, errs := &cappedBuffer{onOverflow: hangUp}, &cappedBuffer{onOverflow: hangUp}
	s.Stdin, s.Stdout, s.Stderr = in, out, errs
	err = s.Run("/bin/sh -c " + quote(script))
	if out.truncated || errs.truncated {
		return "", brig.Errorf(brig.Unavailable, "%s writes more than %s, so it is not a supported machine", l.config.Host, brig.FormatBytes(maxWritten)).
			WithHint("check what its shell prints at the start of a session").Because(err)
	}
	if err != nil {
		if _, ended := errors.AsType[*ssh.ExitError](err); ended {
			return "", brig.Errorf(brig.Unavailable, "%s cannot be used", l.config.Host).
				WithHint("it needs a shell, coreutils and a folder without noexec; the server's log has the cause").
				Because(fmt.Errorf("%w: %s", err, brig.Clip(string(errs.kept), 300)))
		}
		return "", l.failureError(errors.Join(context.Cause(ctx), err))
	}
	return string(out.kept), nil
}

// maxWritten is the maximum output of a script, in bytes.
const maxWritten = 64 << 10

// cappedBuffer keeps the first bytes of a script's output, and calls over if
// more bytes arrive. The limit is necessary because the remote host controls
// the amount of output. cappedBuffer does not embed a bytes.Buffer, because
// its ReadFrom would bypass the limit.
type cappedBuffer struct {
	kept       []byte
	onOverflow func()
	truncated  bool
}

// Write implements io.Writer.
func (c *cappedBuffer) Write(p []byte) (int, error) {
	if len(c.kept)+len(p) > maxWritten {
		c.truncated = true
		c.onOverflow()
		return 0, io.ErrShortWrite
	}
	c.kept = append(c.kept, p...)
	return len(p), nil
}

// start starts a program and returns its standard streams.
func (l *dialer) start(ctx context.Context, command string) (io.ReadWriteCloser, error) {
	s, err := l.session(ctx)
	if err != nil {
		return nil, err
	}
	in, err := s.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := s.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.Start(command); err != nil {
		_ = s.Close() // return the first error
		return nil, l.failureError(err)
	}
	return session{in, out, s}, nil
}

// session is a program's standard streams. They are closed together: closing
// only the standard input would race with a concurrent write.
type session struct {
	io.Writer
	io.Reader
	*ssh.Session
}

// quote quotes a string as one word for a shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
