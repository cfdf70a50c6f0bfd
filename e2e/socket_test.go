package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/brig-run/brig/internal/testenv"
)

// imposter listens at an address that a server announced earlier, and records the bytes that it
// receives.
type imposter struct {
	ln net.Listener

	mu       sync.Mutex // guards the field below
	received []byte
}

func newImposter(t *testing.T, port int) *imposter {
	t.Helper()
	ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	i := &imposter{ln: ln}
	t.Cleanup(i.close)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go i.serve(c)
		}
	}()
	return i
}

// serve records the received bytes and responds to each request, so that the client does not try
// another address.
func (i *imposter) serve(c net.Conn) {
	defer c.Close()
	i.record([]byte("connected "))
	for b := make([]byte, 4096); ; {
		n, err := c.Read(b)
		i.record(b[:n])
		if err != nil {
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 418 I'm a teapot\r\nContent-Length: 0\r\n\r\n")
	}
}

func (i *imposter) record(b []byte) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.received = append(i.received, b...)
}

func (i *imposter) takeReceived() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	s := string(i.received)
	i.received = nil
	return s
}

func (i *imposter) close() { _ = i.ln.Close() }

// talker is a program that responds to each line of input with a line of output.
type talker struct {
	t     *testing.T
	in    io.Writer
	lines *bufio.Reader
	errs  outputLog
}

func newTalker(t *testing.T, cmd *exec.Cmd) *talker {
	t.Helper()
	p := &talker{t: t}
	cmd.Stderr = &p.errs
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	onCleanup(t, func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	p.in, p.lines = in, bufio.NewReader(out)
	return p
}

func (p *talker) send(format string, args ...any) {
	p.t.Helper()
	if _, err := fmt.Fprintf(p.in, format+"\n", args...); err != nil {
		p.t.Fatalf("%v: %s", err, &p.errs)
	}
}

func (p *talker) receive() string {
	p.t.Helper()
	line, err := p.lines.ReadString('\n')
	if err != nil {
		p.t.Fatalf("%q, %v: %s", line, err, &p.errs)
	}
	return strings.TrimSpace(line)
}

// persistentClients starts clients that outlive a server of a data folder in which the sandbox box
// serves on port 8000. Each returned function uses one of the clients, and reports whether it
// reached a server.
func persistentClients(t *testing.T, dir string) map[string]func() bool {
	t.Helper()
	tools := newTalker(t, exec.Command(bin(t, "brig"), "--data-dir", dir, "mcp"))
	tools.send(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`)
	tools.receive()
	tools.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	forward := newTalker(t, exec.Command(bin(t, "brig"), "--data-dir", dir, "sandbox", "forward", "box", "0:8000"))
	address, _, _ := strings.Cut(strings.TrimPrefix(forward.receive(), "http://"), " ")
	last := 0
	return map[string]func() bool{
		"brig mcp": func() bool {
			last++
			tools.send(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"list_sandboxes","arguments":{}}}`, last)
			for {
				var m struct {
					ID     *int
					Result struct{ IsError bool }
					Error  any
				}
				if line := tools.receive(); json.Unmarshal([]byte(line), &m) != nil {
					t.Fatalf("no message: %s", line)
				}
				if m.ID != nil && *m.ID == last {
					return m.Error == nil && !m.Result.IsError
				}
			}
		},
		"brig sandbox forward": func() bool {
			c, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(promptTimeout))
			_, _ = io.WriteString(c, "GET / HTTP/1.0\r\n\r\n")
			b, _ := io.ReadAll(c)
			return strings.Contains(string(b), " 200 OK")
		},
	}
}

// createServingBox creates a sandbox named box that serves on port 8000.
func createServingBox(t *testing.T, dir string) {
	t.Helper()
	brigCommand(t, dir, "sandbox", "create", "box", "--image", "host")
	brigCommand(t, dir, "sandbox", "start", "box", "python3", "-m", "http.server", "8000")
	brigCommand(t, dir, "sandbox", "exec", "box", "sh", "-c", "until grep -q :1F40 /proc/net/tcp; do sleep 0.05; done")
}

// TestClientsOutliveServer verifies that clients of an ended server do not send data to another
// process at its address, and reconnect to the next server. The control is a command with a key,
// whose request reaches that process.
//
//suite:part hostile
func TestClientsOutliveServer(t *testing.T) {
	dir, port := t.TempDir(), testenv.Port(t)
	listen := []string{"--pool", "-1", "--listen", fmt.Sprintf("127.0.0.1:%d", port)}
	s := startServer(t, dir, listen...)
	createServingBox(t, dir)
	clients := persistentClients(t, dir)
	for name, use := range clients {
		if !use() {
			t.Errorf("%s does not reach the server", name)
		}
	}
	s.kill()
	other := newImposter(t, port)
	for name, use := range clients {
		if use() {
			t.Errorf("%s reaches a server that was killed", name)
		}
		if got := other.takeReceived(); got != "" {
			t.Errorf("%s sends another process %q", name, got)
		}
	}
	// Simulate a process that holds the lock of the data folder and announces a server.
	b, err := json.Marshal(map[string]any{"url": s.url, "pid": os.Getpid()})
	if err != nil {
		t.Fatal(err)
	}
	lock, err := os.Open(filepath.Join(dir, "owner.lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	eventually(t, "the killed server's lock is free", func() bool { return unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil })
	if err := os.WriteFile(filepath.Join(dir, "server.json"), b, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(bin(t, "brig"), "--data-dir", dir, "sandbox", "ls").CombinedOutput()
	if got := other.takeReceived(); err == nil || got != "" || !strings.Contains(string(out), "no server listens on") {
		t.Errorf("brig sandbox ls sends another process %q; %s", got, out)
	}
	_ = exec.Command(bin(t, "brig"), "--data-dir", dir, "--url", s.url, "--key", s.key, "sandbox", "ls").Run()
	if got := other.takeReceived(); !strings.Contains(got, s.key) {
		t.Errorf("the control sends another process %q", got)
	}
	other.close()
	lock.Close()
	startServer(t, dir, listen...)
	for name, use := range clients {
		if !use() {
			t.Errorf("%s does not continue with the next server", name)
		}
	}
}

// TestServerInAnotherNetwork verifies that commands reach the server of their data folder
// although it is in another network namespace, where the announced address belongs to that
// namespace. In the clients' namespace, another process listens at the address.
//
//suite:part hostile
func TestServerInAnotherNetwork(t *testing.T) {
	needRoot(t)
	dir, port := t.TempDir(), testenv.Port(t)
	other := newImposter(t, port)
	apart := filepath.Join(t.TempDir(), "apart")
	script := `#!/bin/sh
exec unshare --net sh -c 'ip link set lo up && exec "$0" "$@"' ` + bin(t, "brig") + ` "$@"` + "\n"
	if err := os.WriteFile(apart, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	url := fmt.Sprintf("http://127.0.0.1:%d", port)
	s := launchServer(t, apart, nil, dir, "--pool", "-1", "--listen", fmt.Sprintf("127.0.0.1:%d", port))
	announced := fmt.Sprintf(`{"url":%q,"pid":%d}`, url, s.cmd.Process.Pid)
	eventually(t, "the server announces its address", func() bool {
		b, _ := os.ReadFile(filepath.Join(dir, "server.json"))
		return string(b) == announced
	})
	createServingBox(t, dir)
	for name, use := range persistentClients(t, dir) {
		if !use() {
			t.Errorf("%s does not reach the server", name)
		}
	}
	for _, args := range [][]string{{"sandbox", "ls"}, {"--url", url, "sandbox", "ls"}, {"healthcheck"}, {"sandbox", "logs", "box"}, {"sandbox", "rm", "box"}} {
		brigCommand(t, dir, args...)
	}
	if got := other.takeReceived(); got != "" {
		t.Errorf("another process at %s hears %q", url, got)
	}
	_ = exec.Command(bin(t, "brig"), "--url", url, "--key", "brig_"+strings.Repeat("k", 40), "sandbox", "ls").Run()
	if got := other.takeReceived(); !strings.Contains(got, "brig_kkkk") {
		t.Errorf("the control: %q", got)
	}
}

// TestServerSocket verifies the mode and the authorization of a server's socket. Another user
// cannot use the socket even if its mode allows a connection. A client needs no key, but the key
// in admin.key must be valid. The socket works with a long path and after a crash, and is removed
// when the server stops.
//
//suite:part hostile
func TestServerSocket(t *testing.T) {
	needRoot(t)
	dir := filepath.Join(testenv.OpenDir(t), strings.Repeat("long-", 25))
	s := startServer(t, dir, "--pool", "-1")
	socket := filepath.Join(dir, "brig.sock")
	if info, err := os.Stat(socket); err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Fatalf("%v, %v", info, err)
	}
	if out := brigCommand(t, dir, "whoami"); !strings.Contains(out, "admin, operator of default") {
		t.Errorf("through the socket: %s", out)
	}
	short := filepath.Join(testenv.OpenDir(t), "s") // curl needs a short path
	if err := os.Symlink(socket, short); err != nil {
		t.Fatal(err)
	}
	ask := func(uid uint32, args ...string) string {
		t.Helper()
		cmd := exec.Command("curl", append([]string{"-s", "--max-time", "60", "-o", "/dev/null", "-w", "%{http_code}", "--unix-socket", short, "http://localhost/v1/keys"}, args...)...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		out, _ := cmd.Output() // the status is 000 if curl cannot connect
		return string(out)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	key := []string{"-H", "Authorization: Bearer " + s.key}
	if got := ask(testenv.OtherUser, key...); got != "000" {
		t.Errorf("another user connects: %s", got)
	}
	if err := os.Chmod(socket, 0o666); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		uid  uint32
		args []string
		want string
	}{
		"another user":             {testenv.OtherUser, nil, "403"},
		"another user with a key":  {testenv.OtherUser, key, "403"},
		"root":                     {0, nil, "200"},
		"root with a key":          {0, key, "200"},
		"root with a wrong key":    {0, []string{"-H", "Authorization: Bearer " + strings.ToUpper(s.key)}, "401"},
		"a browser through socat":  {0, []string{"-H", "Sec-Fetch-Site: none"}, "401"},
		"a page of another site":   {0, []string{"-H", "Origin: http://evil.test"}, "403"},
		"a page by another's name": {0, []string{"-H", "Host: evil.test"}, "421"},
	} {
		if got := ask(c.uid, c.args...); got != c.want {
			t.Errorf("%s: %s, want %s", what, got, c.want)
		}
	}
	// A command is rejected if other users may write to the data folder.
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(bin(t, "brig"), "--data-dir", dir, "sandbox", "ls").CombinedOutput(); err == nil || !strings.Contains(string(out), "other users can write to the data folder") {
		t.Errorf("in a folder that others may write: %v, %s", err, out)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	// Rotating the key does not affect the owner of the data folder. Without the key file, the
	// socket grants no access until the next start.
	brigCommand(t, dir, "key", "rotate", "admin")
	eventually(t, "the old key is refused", func() bool { return ask(0, key...) == "401" })
	brigCommand(t, dir, "whoami")
	if err := os.Remove(filepath.Join(dir, "admin.key")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the socket is refused", func() bool { return ask(0) == "401" })
	// A crash leaves the socket, and the next server replaces it.
	s.kill()
	if _, err := os.Stat(socket); err != nil {
		t.Errorf("after a crash: %v", err)
	}
	s = startServer(t, dir, "--pool", "-1")
	if got := ask(0); got != "200" {
		t.Errorf("after another start: %s", got)
	}
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(socket); !os.IsNotExist(err) {
		t.Errorf("after a stop: %v", err)
	}
}

// TestGuestCannotReachSocket verifies that a program in a sandbox cannot reach the server's
// socket through any path. The control is the same program on the host.
//
//suite:part hostile
func TestGuestCannotReachSocket(t *testing.T) {
	dir := t.TempDir()
	s := startServer(t, dir, "--pool", "-1")
	socket := filepath.Join(dir, "brig.sock")
	// The program creates a workspace, so that the host can detect a successful request.
	const program = `
import glob, os, socket, sys
path, name = sys.argv[1:]
body = '{"name":"%s"}' % name
request = "POST /v1/workspaces HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(body), body)
places = [path, "/proc/1/root" + path, "/proc/self/root" + path, "../" * 20 + path, "\0" + path, "/workspace/link"]
if name == "inside":
    for top in ["/dev", "/home", "/mnt", "/root", "/run", "/srv", "/tmp", "/var", "/workspace"]:
        places += glob.glob(top + "/**/*.sock", recursive=True)
    places += [line.split()[-1] for line in open("/proc/net/unix") if "/" in line]
try: os.symlink(path, "/workspace/link")
except OSError: pass
for p in places:
    s = socket.socket(socket.AF_UNIX)
    try:
        s.connect(p)
        s.sendall(request.encode())
        print(p, s.recv(100))
    except (OSError, ValueError) as e:
        print(p, e)
`
	brigCommand(t, dir, "sandbox", "create", "box", "--image", "host", "--allow", "*")
	for _, user := range []string{"user", "root"} {
		t.Log(brigCommand(t, dir, "sandbox", "exec", "--user", user, "box", "python3", "-c", program, socket, "inside"))
	}
	c := s.client()
	names := func() string {
		t.Helper()
		list, err := c.Workspaces(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, w := range list {
			all = append(all, w.Name)
		}
		return strings.Join(all, " ")
	}
	if got := names(); got != "" {
		t.Errorf("a program in the sandbox reached the server: %s", got)
	}
	if out := output(t, "python3", "-c", program, socket, "outside"); names() != "outside" {
		t.Errorf("the control does not reach the server: %q: %s", names(), out)
	}
}
