package ssh

import (
	"bytes"
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
)

// line is the connection to the machine, made anew when it is needed and gone.
type line struct {
	config *Config
	dir    string // for what the library wants in a file
	called func(brig.Call)

	making sync.Mutex // one connection is made at a time

	mu     sync.Mutex // guards the field below
	client *connection
}

// connection is one to the machine. ended is closed when it is.
type connection struct {
	*ssh.Client
	ended chan struct{}
}

// errKey is a machine that shows another key than the one that is known.
var errKey = errors.New("the host key is not the known one")

// connect returns the connection.
func (l *line) connect(ctx context.Context) (*connection, error) {
	l.making.Lock()
	defer l.making.Unlock()
	l.mu.Lock()
	c := l.client
	l.mu.Unlock()
	if c != nil {
		return c, nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(l.config.Timeout)*time.Second)
	defer cancel()
	begin := time.Now()
	client, err := l.dial(ctx)
	call := brig.Call{Operation: "connect", Seconds: time.Since(begin).Seconds()}
	if err == nil {
		call.Status = 200
	}
	l.called(call)
	if err != nil {
		return nil, l.failure(err)
	}
	c = &connection{client, make(chan struct{})}
	l.mu.Lock()
	l.client = c
	l.mu.Unlock()
	go l.watch(c)
	go keepAlive(client)
	return c, nil
}

// session begins a session, over a new connection when the one that was there
// turns out to have ended.
func (l *line) session(ctx context.Context) (*ssh.Session, error) {
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
		_ = c.Close() // it is of no use
		<-c.ended
	}
	return nil, l.failure(err)
}

// session begins a session. For one that is begun in the moment in which the
// connection ends, the library waits for ever.
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
				_ = s.Close() // nobody wants it
			}
		}()
		return nil, context.Cause(ctx)
	}
}

func (l *line) dial(ctx context.Context) (*ssh.Client, error) {
	address := net.JoinHostPort(l.config.Host, strconv.Itoa(l.config.Port))
	settings, err := l.settings(address)
	if err != nil {
		return nil, err
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
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

// settings are how the machine and this server prove who they are.
func (l *line) settings(address string) (*ssh.ClientConfig, error) {
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
	return c, l.known(address, c)
}

// known has the machine's key be one of the known ones.
func (l *line) known(address string, c *ssh.ClientConfig) error {
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
	// A machine has keys of several kinds. It is to show one that is known, and
	// which are is what the library says of one that cannot be.
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

// failure is why there is no connection.
func (l *line) failure(err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	field := func(kind brig.Kind, name, hint, format string, args ...any) error {
		e := brig.Errorf(kind, format, args...).WithHint("%s", hint).Because(err)
		e.Field = name
		return e
	}
	var timeout net.Error
	switch {
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

// watch forgets a connection that has ended.
func (l *line) watch(c *connection) {
	defer close(c.ended)
	_ = c.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.client == c {
		l.client = nil
	}
}

// alive is how often the machine has to answer.
const alive = 15 * time.Second

// keepAlive ends a connection on which nothing is answered.
func keepAlive(c *ssh.Client) {
	for {
		time.Sleep(alive)
		late := time.AfterFunc(alive, func() { _ = c.Close() })
		_, _, err := c.SendRequest("keepalive@openssh.com", true, nil)
		late.Stop()
		if err != nil {
			return
		}
	}
}

func (l *line) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.client == nil {
		return nil
	}
	err := l.client.Close()
	l.client = nil
	return err
}

// run runs a script for the machine's shell to its end.
func (l *line) run(ctx context.Context, script string, in io.Reader) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(l.config.Timeout)*time.Second)
	defer cancel()
	s, err := l.session(ctx)
	if err != nil {
		return "", err
	}
	hangUp := func() { _ = s.Close() } // it may have ended
	defer hangUp()
	defer context.AfterFunc(ctx, hangUp)()
	var out, errs bytes.Buffer
	s.Stdin, s.Stdout, s.Stderr = in, &out, &errs
	if err := s.Run("/bin/sh -c " + quote(script)); err != nil {
		if _, ended := errors.AsType[*ssh.ExitError](err); ended {
			return "", brig.Errorf(brig.Unavailable, "%s cannot be used", l.config.Host).
				WithHint("it needs a shell, coreutils and a folder that may hold programs; the server's log has the cause").
				Because(fmt.Errorf("%w: %s", err, brig.Clip(errs.String(), 300)))
		}
		return "", l.failure(errors.Join(context.Cause(ctx), err))
	}
	return out.String(), nil
}

// start starts a program and returns its standard streams.
func (l *line) start(ctx context.Context, command string) (io.ReadWriteCloser, error) {
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
		_ = s.Close() // what failed counts
		return nil, l.failure(err)
	}
	return session{in, out, s}, nil
}

// session is a program's standard streams. It is closed as a whole: to end its
// standard input alone races with who still writes to it.
type session struct {
	io.Writer
	io.Reader
	*ssh.Session
}

// quote makes one word of a text for a shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
