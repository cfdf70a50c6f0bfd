package ssh

import (
	"bytes"
	"context"
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

	"github.com/brig-run/brig"
)

// password is the one of the account that sshd lets in.
const password = "a password for a test"

// sshd is a real OpenSSH server on this machine's loopback.
type sshd struct {
	cmd       *exec.Cmd
	port      int
	hostKey   ssh.PublicKey
	clientKey string
}

// key makes a key, as PEM and as its public part.
func key(t *testing.T, passphrase string) (private string, public ssh.PublicKey) {
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

// startSSHD starts a server with keys, a configuration and passwords of its own.
func startSSHD(t *testing.T) *sshd {
	t.Helper()
	program := "/usr/sbin/sshd"
	if _, err := os.Stat(program); err != nil || os.Getuid() != 0 {
		t.Skip("needs root, and openssh-server: make setup")
	}
	dir := t.TempDir()
	s := &sshd{}
	var hostPrivate string
	hostPrivate, s.hostKey = key(t, "")
	clientPrivate, clientPublic := key(t, "")
	s.clientKey = clientPrivate
	hash, err := exec.Command("openssl", "passwd", "-6", password).Output()
	if err != nil {
		t.Fatalf("hash a password: %v", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.port = l.Addr().(*net.TCPAddr).Port
	l.Close()
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
`, s.port, file("host_key", hostPrivate), file("authorized_keys", string(ssh.MarshalAuthorizedKey(clientPublic)))))
	shadow := file("shadow", "root:"+strings.TrimSpace(string(hash))+":19000:0:99999:7:::\n")
	// The machine's own passwords stay what they are.
	s.cmd = exec.Command("unshare", "-m", "/bin/sh", "-c", fmt.Sprintf("mkdir -p /run/sshd && mount --bind %s /etc/shadow && exec %s -D -e -f %s", shadow, program, config))
	var said bytes.Buffer
	s.cmd.Stderr = &said
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.hangUp(t)
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
	})
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		c, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)))
		if err == nil {
			c.Close()
			return s
		}
		if time.Now().After(end) {
			t.Fatalf("sshd does not listen: %s", &said)
		}
	}
}

// hangUp kills what serves connections, as a machine that crashes would.
func (s *sshd) hangUp(t *testing.T) {
	t.Helper()
	out, err := exec.Command("ps", "-o", "pid=", "--ppid", strconv.Itoa(s.cmd.Process.Pid)).Output()
	if err != nil {
		return // there are none
	}
	for _, f := range strings.Fields(string(out)) {
		pid, err := strconv.Atoi(f)
		if err != nil {
			t.Fatal(err)
		}
		if p, err := os.FindProcess(pid); err == nil {
			_ = p.Kill() // it may have ended
		}
	}
}

// config is one with which the server lets in who it should.
func (s *sshd) config() *Config {
	return &Config{
		Host: "127.0.0.1", Port: s.port, Username: "root", PrivateKey: s.clientKey, KnownHosts: s.line(s.hostKey),
		PythonBin: "python3", NodeBin: "node", WorkDir: "/tmp", Timeout: 30,
	}
}

// line is a line of known_hosts.
func (s *sshd) line(k ssh.PublicKey) string {
	return fmt.Sprintf("[127.0.0.1]:%d %s", s.port, ssh.MarshalAuthorizedKey(k))
}

// openSSH opens a provider. What it leaves on the machine goes with the test
// that was the first to open it in its folder.
func openSSH(t *testing.T, agent, dir string, c *Config) *Provider {
	t.Helper()
	p, err := open(t.Context(), brig.Site{ID: Name, Dir: dir, Agent: agent, Called: func(brig.Call) {}}, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// tidy ends the keeper, and removes what it left.
func tidy(t *testing.T, p *Provider) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	agent, err := p.bring(ctx)
	if err == nil {
		err = p.post(keeper(agent)).Quit(ctx)
	}
	if err == nil {
		_, err = p.line.run(ctx, "rm -rf "+quote(p.dir), nil)
	}
	if err != nil {
		t.Errorf("tidy up: %v", err)
	}
}
