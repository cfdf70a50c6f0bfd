// Package sshtest provides a host for SSH in tests: a real OpenSSH server on
// the loopback address.
package sshtest

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/brig-run/brig/internal/testenv"
)

// Password is the password of root, the only account that a Server accepts.
const Password = "a password for a test"

// Server is an OpenSSH server with its own keys, configuration and passwords.
type Server struct {
	Port      int
	HostKey   ssh.PublicKey
	ClientKey string // in PEM format; the server accepts it

	cmd *exec.Cmd
}

// Key creates a key, and returns it in PEM format with its public part.
func Key(t testing.TB, passphrase string) (private string, public ssh.PublicKey) {
	t.Helper()
	pub, priv, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(priv, "")
	if passphrase != "" {
		block, err = ssh.MarshalPrivateKeyWithPassphrase(priv, "", []byte(passphrase))
	}
	if err != nil {
		t.Fatal(err)
	}
	public, err = ssh.NewPublicKey(pub)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(block)), public
}

// Start starts a server, which ends with the test.
func Start(t testing.TB) *Server {
	t.Helper()
	program := "/usr/sbin/sshd"
	if _, err := os.Stat(program); err != nil || os.Getuid() != 0 {
		t.Skip("needs root, and openssh-server: make setup")
	}
	dir := t.TempDir()
	s := &Server{}
	var hostPrivate string
	hostPrivate, s.HostKey = Key(t, "")
	clientPrivate, clientPublic := Key(t, "")
	s.ClientKey = clientPrivate
	hash, err := exec.Command("openssl", "passwd", "-6", Password).Output()
	if err != nil {
		t.Fatalf("hash a password: %v", err)
	}
	s.Port = testenv.Port(t)
	file := func(name, content string) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	config := file("sshd_config", fmt.Sprintf(`ListenAddress 127.0.0.1
Port %d
HostKey %s
AuthorizedKeysFile %s
PidFile none
UsePAM no
StrictModes no
PermitRootLogin yes
PasswordAuthentication yes
LogLevel ERROR
`, s.Port, file("host_key", hostPrivate), file("authorized_keys", string(ssh.MarshalAuthorizedKey(clientPublic)))))
	shadow := file("shadow", "root:"+strings.TrimSpace(string(hash))+":19000:0:99999:7:::\n")
	// Run the server in its own mount namespace, so that the passwords of the
	// real host remain unchanged.
	s.cmd = exec.Command("unshare", "-m", "/bin/sh", "-c", fmt.Sprintf("mkdir -p /run/sshd && mount --bind %s /etc/shadow && exec %s -D -e -f %s", shadow, program, config))
	var stderr bytes.Buffer
	s.cmd.Stderr = &stderr
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Disconnect(t)
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
	})
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		c, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port)))
		if err == nil {
			c.Close()
			return s
		}
		if time.Now().After(end) {
			t.Fatalf("sshd does not listen: %s", &stderr)
		}
	}
}

// Disconnect kills the processes that serve connections, like a crash of the
// host.
func (s *Server) Disconnect(t testing.TB) {
	t.Helper()
	out, err := exec.Command("ps", "-o", "pid=", "--ppid", strconv.Itoa(s.cmd.Process.Pid)).Output()
	if err != nil {
		return // no connections
	}
	for _, f := range strings.Fields(string(out)) {
		pid, err := strconv.Atoi(f)
		if err != nil {
			t.Fatal(err)
		}
		if p, err := os.FindProcess(pid); err == nil {
			_ = p.Kill() // it may have exited already
		}
	}
}

// Line returns the known_hosts line for this server with the given key.
func (s *Server) Line(k ssh.PublicKey) string {
	return fmt.Sprintf("[127.0.0.1]:%d %s", s.Port, ssh.MarshalAuthorizedKey(k))
}
