package e2e

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha1"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
)

// TestEgressClients verifies that unmodified clients can connect to an allowed host with any
// protocol, without proxy settings in the sandbox.
//
//suite:part egress
func TestEgressClients(t *testing.T) {
	if !runInLab(t) {
		return
	}
	l := newEgressLab(t)
	l.name("ok.test", good)
	repo := repository(t)
	roots := x509.NewCertPool()
	roots.AddCert(l.web(repo).Certificate())
	l.secureShell(repo)
	l.database()
	e, ctx := engineWith(t, engine.Options{Egress: engine.EgressOptions{Resolver: l.resolver(), Roots: roots}})
	box, err := e.Create(ctx, brig.Spec{Egress: brig.Egress{Rules: []brig.EgressRule{{Host: "ok.test"}}}, TTL: 10 * time.Minute, Limits: brig.Limits{Memory: brig.GiB}})
	if err != nil {
		t.Fatal(err)
	}
	sh := func(t *testing.T, script string) string {
		t.Helper()
		res, err := e.Exec(ctx, box.Spec.Name, brig.Command{Shell: script, Timeout: time.Minute}, brig.IO{})
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(res.Stdout.Head) + string(res.Stderr.Head))
	}
	check := func(name, script, want string) {
		t.Run(name, func(t *testing.T) {
			if got := sh(t, script); !strings.Contains(got, want) {
				t.Errorf("%s: %s", script, got)
			}
		})
	}
	const ask = "curl -sS -k -o /dev/stderr -w '%{http_version} %{http_code}' "
	check("http1", ask+"http://ok.test/hello", "1.1 200")
	check("https", ask+"--http1.1 https://ok.test/hello", "1.1 200")
	check("http2", ask+"--http2 https://ok.test/hello", "2 200")
	check("websocket", "python3 -c '"+webSocket+"'", "echo of hello")
	check("git over https", "cd /tmp && git -c http.sslVerify=false clone -q https://ok.test/repo.git a && cat a/file", "content")
	check("git over ssh", "cd /tmp && GIT_SSH_COMMAND='ssh -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR' git clone -q ssh://me@ok.test/repo.git b && cat b/file", "content")
	check("postgresql", "PGPASSWORD=x $(ls -d /usr/lib/postgresql/*/bin/psql | tail -1) -h ok.test -U postgres -Atc 'select 6*7'", "42")

	// The following rules allow only some requests, so the proxy terminates TLS with a
	// certificate authority that the sandbox trusts.
	rules := brig.Egress{Rules: []brig.EgressRule{{Host: "ok.test", Methods: []string{"GET"}, Paths: []string{"/hello", "/repo.git/*", "/socket"}}}}
	inspected, err := e.Create(ctx, brig.Spec{Egress: rules, TTL: 10 * time.Minute, Limits: brig.Limits{Memory: brig.GiB}})
	if err != nil {
		t.Fatal(err)
	}
	box = inspected
	const trusted = "curl -sS -o /dev/stderr -w '%{http_version} %{http_code}' "
	check("inspected https", trusted+"--http1.1 https://ok.test/hello", "1.1 200")
	check("inspected http2", trusted+"--http2 https://ok.test/hello", "2 200")
	check("inspected node", `node -e 'fetch("https://ok.test/hello").then(r => r.text()).then(console.log)'`, "hello")
	check("inspected python", `python3 -c 'import urllib.request as u; print(u.urlopen("https://ok.test/hello").read())'`, "hello")
	check("inspected git", "cd /tmp && git clone -q https://ok.test/repo.git a && cat a/file", "content")
	check("inspected websocket", "python3 -c '"+webSocket+"'", "echo of hello")
	check("another path", trusted+"https://ok.test/other", "403")
	check("another path, encoded", trusted+"--path-as-is https://ok.test/repo.git/%2e%2e/other", "400")
	check("another method", trusted+"-X POST https://ok.test/hello", "403")
	check("another host", trusted+"-H 'Host: evil.test' https://ok.test/hello", "421")
	check("no HTTP", "PGPASSWORD=x timeout 5 $(ls -d /usr/lib/postgresql/*/bin/psql | tail -1) -h ok.test -U postgres -Atc 'select 6*7'; echo $?", "2")
}

// TestEgressInstall verifies that packages can be installed in a sandbox that may connect only to
// their registries.
//
//suite:part egress full
func TestEgressInstall(t *testing.T) {
	needRoot(t)
	e, ctx := newEngine(t)
	out, err := exec.CommandContext(t.Context(), "npm", "config", "get", "registry").Output()
	if err != nil {
		t.Fatal(err)
	}
	registry := strings.TrimSpace(string(out))
	host := strings.Split(strings.TrimPrefix(strings.TrimPrefix(registry, "https://"), "http://"), "/")[0]
	for _, c := range []struct {
		name, script, want string
		hosts              []string
	}{
		{"npm", "cd /tmp && npm install --no-audit --no-fund --registry " + registry + " is-number@7.0.0 >&2; ls node_modules", "is-number", []string{host}},
		{"pip", "cd /tmp && python3 -m pip install -q --no-cache-dir --target x six==1.16.0 >&2; ls x", "six.py", []string{"pypi.org", "files.pythonhosted.org"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := brig.Program{Command: []string{"/bin/sh", "-c", c.script}, Timeout: 2 * time.Minute, Limits: brig.Limits{Memory: brig.GiB}}
			for _, allowed := range []bool{true, false} {
				for _, h := range c.hosts {
					if allowed {
						p.Egress.Rules = append(p.Egress.Rules, brig.EgressRule{Host: h, Ports: []int{443}})
					}
				}
				if !allowed {
					p.Egress, p.Timeout = brig.Egress{Rules: []brig.EgressRule{{Host: "elsewhere.test"}}}, 15*time.Second
				}
				o, err := e.Run(ctx, p, brig.IO{})
				if err != nil {
					t.Fatal(err)
				}
				if got := strings.Contains(string(o.Stdout.Head), c.want); got != allowed {
					t.Errorf("allowed: %t, installed: %t: %s", allowed, got, o.Stderr.Head)
				}
			}
		})
	}
}

// webSocket is a minimal WebSocket client.
const webSocket = `
import socket, ssl, os
c = ssl._create_unverified_context()
s = c.wrap_socket(socket.create_connection(("ok.test", 443), timeout=5), server_hostname="ok.test")
s.sendall(b"GET /socket HTTP/1.1\r\nHost: ok.test\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n")
head = b""
while b"\r\n\r\n" not in head: head += s.recv(1)
assert b" 101 " in head, head
m = b"hello"
s.sendall(bytes([0x81, 0x80 | len(m)]) + bytes(4) + m)
n = s.recv(2)[1]
print("echo of", s.recv(n).decode())
`

// web returns a server for HTTP, HTTPS with HTTP/2, a git repository and a WebSocket.
func (l *lab) web(repo string) *httptest.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("/hello", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "hello by", r.Method) })
	mux.HandleFunc("/other", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "other") })
	mux.Handle("/repo.git/", http.StripPrefix("/repo.git/", http.FileServer(http.Dir(repo))))
	mux.HandleFunc("/socket", echoSocket)
	s := httptest.NewUnstartedServer(mux)
	s.Listener.Close()
	s.Listener, _ = l.listen(good, 443)
	s.EnableHTTP2 = true
	cert, key := certificate(l.t, "ok.test")
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		l.t.Fatal(err)
	}
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	s.StartTLS()
	l.t.Cleanup(s.Close)
	plain, _ := l.listen(good, 80)
	server := &http.Server{Handler: mux}
	go func() { _ = server.Serve(plain) }()
	l.t.Cleanup(func() { server.Close() })
	return s
}

// echoSocket serves a WebSocket that echoes one short message.
func echoSocket(w http.ResponseWriter, r *http.Request) {
	sum := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	c, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer c.Close()
	fmt.Fprintf(buf, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n", base64.StdEncoding.EncodeToString(sum[:]))
	_ = buf.Flush()
	head := make([]byte, 6)
	if _, err := io.ReadFull(buf, head); err != nil {
		return
	}
	m := make([]byte, head[1]&0x7f)
	if _, err := io.ReadFull(buf, m); err != nil {
		return
	}
	for i := range m {
		m[i] ^= head[2+i%4]
	}
	_, _ = c.Write(append([]byte{0x81, byte(len(m))}, m...))
}

// repository returns the directory of a bare git repository with one file.
func repository(t *testing.T) string {
	t.Helper()
	return bareRepository(t, "echo content > file")
}

// bareRepository returns the directory of a bare git repository with one commit of the files that
// a script creates. Its files can be served over plain HTTP.
func bareRepository(t *testing.T, script string) string {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "set -e; export HOME=$PWD GIT_CONFIG_NOSYSTEM=1; git init -q -b main work; cd work\n"+script+`
		git add .; git -c user.name=a -c user.email=a@ok.test commit -qm one; cd ..; git clone -q --bare work repo.git; cd repo.git; git update-server-info`)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return filepath.Join(dir, "repo.git")
}

// secureShell serves the repository over SSH.
func (l *lab) secureShell(repo string) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		l.t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		l.t.Fatal(err)
	}
	config := &ssh.ServerConfig{NoClientAuth: true}
	config.AddHostKey(signer)
	l.serve(22, func(c net.Conn) {
		_, channels, requests, err := ssh.NewServerConn(c, config)
		if err != nil {
			return
		}
		go ssh.DiscardRequests(requests)
		for ch := range channels {
			c, requests, err := ch.Accept()
			if err != nil {
				return
			}
			for r := range requests {
				_ = r.Reply(r.Type == "exec" || r.Type == "env", nil)
				if r.Type != "exec" {
					continue
				}
				cmd := exec.Command("git-upload-pack", repo)
				cmd.Stdin, cmd.Stdout, cmd.Stderr = c, c, c.Stderr()
				status := []byte{0, 0, 0, 0}
				if cmd.Run() != nil {
					status[3] = 1
				}
				_, _ = c.SendRequest("exit-status", false, status)
				c.Close()
				break
			}
		}
	})
}

// database starts a PostgreSQL server at the good address.
func (l *lab) database() {
	t := l.t
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil || len(found) == 0 {
		t.Fatal("PostgreSQL is not installed")
	}
	bin, dir := found[len(found)-1], t.TempDir()
	for _, d := range []string{filepath.Dir(dir), dir} {
		if err := os.Chmod(d, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	as := func(argv ...string) *exec.Cmd {
		return exec.Command("ip", append([]string{"netns", "exec", l.ns, "setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"}, argv...)...)
	}
	data := filepath.Join(dir, "data")
	if out, err := as(filepath.Join(bin, "initdb"), "-D", data, "-A", "trust", "-U", "postgres", "--no-sync").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	hba := "host all all all trust\n"
	if err := os.WriteFile(filepath.Join(data, "pg_hba.conf"), []byte(hba), 0o644); err != nil {
		t.Fatal(err)
	}
	server := as(filepath.Join(bin, "postgres"), "-D", data, "-h", good, "-p", "5432", "-k", dir, "-F")
	var log bytes.Buffer
	server.Stdout, server.Stderr = &log, &log
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Process.Signal(os.Interrupt); _ = server.Wait() })
	for end := time.Now().Add(2 * promptTimeout); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		err := l.behindRouter(func() error {
			c, err := net.DialTimeout("tcp", good+":5432", time.Second)
			if err == nil {
				c.Close()
			}
			return err
		})
		if err == nil {
			return
		}
	}
	t.Fatalf("PostgreSQL does not start: %s", log.String())
}
