package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/brig-run/brig"
)

// The keys of the tests below: one that is in a folder, and one that is given.
const (
	folderKey = "brig_of-the-folder-0000000000000000000000"
	givenKey  = "brig_given-by-the-user-000000000000000000"
)

// ear listens, and keeps every byte that reaches it.
type ear struct {
	url, port string

	mu    sync.Mutex // guards heard
	heard bytes.Buffer
}

func listenAt(t *testing.T, address string) *ear {
	t.Helper()
	ln, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	e := &ear{url: "http://" + ln.Addr().String(), port: strconv.Itoa(ln.Addr().(*net.TCPAddr).Port)}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			running.Go(func() { e.hear(c) })
		}
	})
	t.Cleanup(func() { ln.Close(); running.Wait() })
	return e
}

// hear keeps what one connection brings and answers its first request. A
// connection without a byte is kept as well.
func (e *ear) hear(c net.Conn) {
	defer c.Close()
	kept := writerFunc(func(b []byte) (int, error) {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.heard.Write(b)
	})
	_, _ = kept.Write([]byte("connected "))
	if _, err := http.ReadRequest(bufio.NewReader(io.TeeReader(c, kept))); err == nil {
		_, _ = io.WriteString(c, "HTTP/1.1 418 I'm a teapot\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// told returns what was heard so far, and forgets it.
func (e *ear) told() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	defer e.heard.Reset()
	return e.heard.String()
}

// folderServedAt is a data folder with a key, whose server is at url. Without
// owned the server is gone and has left its address.
func folderServedAt(t *testing.T, url string, owned bool) string {
	t.Helper()
	dir := t.TempDir()
	b, err := json.Marshal(announcement{URL: url, PID: os.Getpid()})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{keyFile: folderKey + "\n", serverFile: string(b)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if owned {
		lock, err := own(dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { lock.Close() })
	}
	return dir
}

// runWith runs a command that asks a server, with no other environment than env.
func runWith(t *testing.T, dir string, env map[string]string, flags ...string) (errs string, code int) {
	t.Helper()
	for _, name := range []string{"BRIG_URL", "BRIG_API_KEY", "BRIG_DATA_DIR", "BRIG_CONFIG", "BRIG_INSECURE_HTTP"} {
		t.Setenv(name, env[name])
	}
	var out, err bytes.Buffer
	code = execute(append([]string{"--data-dir", dir, "sandbox", "ls"}, flags...), strings.NewReader(""), &out, &err)
	return err.String(), code
}

// The folder's key goes to the folder's own server. Nobody else hears from the
// command at all, unless the user has given a key.
func TestFolderKey(t *testing.T) {
	served, other := listenAt(t, "127.0.0.1:0"), listenAt(t, "127.0.0.1:0")
	for name, c := range map[string]struct {
		flags  []string
		env    map[string]string
		served string    // the key that the folder's server gets
		other  string    // the key that the other one gets
		want   brig.Kind // of the error before anything is sent; empty if something is
	}{
		"no URL":                   {served: folderKey},
		"the address itself":       {flags: []string{"--url", served.url}, served: folderKey},
		"the address in BRIG_URL":  {env: map[string]string{"BRIG_URL": served.url}, served: folderKey},
		"with a slash":             {flags: []string{"--url", served.url + "/"}, served: folderKey},
		"with a path":              {flags: []string{"--url", served.url + "/below"}, served: folderKey},
		"in capitals":              {flags: []string{"--url", "HTTP://127.0.0.1:" + served.port}, served: folderKey},
		"as localhost":             {flags: []string{"--url", "http://localhost:" + served.port}, served: folderKey},
		"mapped into IPv6":         {flags: []string{"--url", "http://[::ffff:127.0.0.1]:" + served.port}, served: folderKey},
		"a flag's key":             {flags: []string{"--key", givenKey}, served: givenKey},
		"a variable's key":         {env: map[string]string{"BRIG_API_KEY": givenKey}, served: givenKey},
		"another port":             {flags: []string{"--url", other.url}, want: brig.Unauthenticated},
		"another port in BRIG_URL": {env: map[string]string{"BRIG_URL": other.url}, want: brig.Unauthenticated},
		"another port, localhost":  {flags: []string{"--url", "http://localhost:" + other.port}, want: brig.Unauthenticated},
		"another address":          {flags: []string{"--url", "http://127.0.0.2:" + served.port}, want: brig.Unauthenticated},
		"the other loopback":       {flags: []string{"--url", "http://[::1]:" + served.port}, want: brig.Unauthenticated},
		"another scheme":           {flags: []string{"--url", "https://127.0.0.1:" + served.port}, want: brig.Unauthenticated},
		"the usual port":           {flags: []string{"--url", "http://127.0.0.1"}, want: brig.Unauthenticated},
		"the address as a user":    {flags: []string{"--url", "http://127.0.0.1:" + served.port + "@127.0.0.1:" + other.port}, want: brig.InvalidArgument},
		"the address as a path":    {flags: []string{"--url", other.url + "/" + served.url}, want: brig.Unauthenticated},
		"no URL of a server":       {flags: []string{"--url", "127.0.0.1:" + served.port}, want: brig.InvalidArgument},
		"an empty key":             {flags: []string{"--url", other.url, "--key", ""}, want: brig.Unauthenticated},
		"other, a flag's key":      {flags: []string{"--url", other.url, "--key", givenKey}, other: givenKey},
		"other, a variable's key": {
			flags: []string{"--url", other.url}, env: map[string]string{"BRIG_API_KEY": givenKey}, other: givenKey,
		},
	} {
		t.Run(name, func(t *testing.T) {
			errs, code := runWith(t, folderServedAt(t, served.url, true), c.env, c.flags...)
			for who, got := range map[string]struct{ heard, key string }{"the folder's server": {served.told(), c.served}, "the other": {other.told(), c.other}} {
				if got.key == "" && got.heard != "" || got.key != "" && !strings.Contains(got.heard, "Authorization: Bearer "+got.key+"\r\n") {
					t.Errorf("%s hears %q, want the key %q", who, got.heard, got.key)
				}
			}
			// What answers is no Brig server, so that what was sent fails as well.
			want := cmp.Or(c.want, brig.ConnectionFailed)
			if code == 0 || !strings.Contains(errs, "("+want.Code()+")") {
				t.Errorf("exit code %d, %s, want %s", code, errs, want)
			}
			if c.want == brig.Unauthenticated && !strings.Contains(errs, "--key or BRIG_API_KEY") {
				t.Errorf("the error does not say how to give a key: %s", errs)
			}
		})
	}
}

// localhost may be another program's address on the same port, so the command
// connects to the address that the server has announced.
func TestFolderKeyTwoLoopbacks(t *testing.T) {
	served := listenAt(t, "127.0.0.2:0")
	other := listenAt(t, "127.0.0.1:"+served.port)
	errs, _ := runWith(t, folderServedAt(t, served.url, true), nil, "--url", "http://localhost:"+served.port)
	if got := served.told(); !strings.Contains(got, folderKey) {
		t.Errorf("the folder's server hears %q; %s", got, errs)
	}
	if got := other.told(); got != "" {
		t.Errorf("another listener hears %q", got)
	}
}

// A server that is gone has no key to get: whoever listens there now is
// somebody else.
func TestFolderKeyOfNobody(t *testing.T) {
	other := listenAt(t, "127.0.0.1:0")
	errs, code := runWith(t, folderServedAt(t, other.url, false), nil, "--url", other.url)
	if got := other.told(); got != "" {
		t.Errorf("it hears %q", got)
	}
	if code != exitError || !strings.Contains(errs, "("+brig.Unauthenticated.Code()+")") {
		t.Errorf("exit code %d, %s", code, errs)
	}
}

// Who owns a folder and is no server has announced nothing, whatever an earlier
// server has left there.
func TestFolderKeyOfAnEarlierServer(t *testing.T) {
	other := listenAt(t, "127.0.0.1:0")
	for name, lock := range map[string]func(dir string) (*os.File, error){
		"somebody has the folder": takeOver,
		"somebody looks who has it": func(dir string) (*os.File, error) {
			f, err := os.Create(filepath.Join(dir, ownerFile))
			if err == nil {
				err = unix.Flock(int(f.Fd()), unix.LOCK_SH)
			}
			return f, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := folderServedAt(t, other.url, false)
			f, err := lock(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			errs, code := runWith(t, dir, nil, "--url", other.url)
			if got := other.told(); got != "" {
				t.Errorf("whoever listens there now hears %q", got)
			}
			if code != exitError || !strings.Contains(errs, "("+brig.Unauthenticated.Code()+")") {
				t.Errorf("exit code %d, %s", code, errs)
			}
			if at := servedBy(dir); at != "" {
				t.Errorf("the folder is said to be served at %s", at)
			}
		})
	}
}

// No key leaves this machine in plain HTTP, whoever has given it, unless the
// user admits that. 0.0.0.0 is no loopback, and yet leads to the listener.
func TestKeyInPlainHTTP(t *testing.T) {
	far := listenAt(t, "0.0.0.0:0")
	at := "http://0.0.0.0:" + far.port
	for name, c := range map[string]struct {
		flags []string
		env   map[string]string
		key   string // the key that the listener gets; empty if it hears nothing
	}{
		"a flag's key":                   {flags: []string{"--url", at, "--key", givenKey}},
		"a variable's key":               {flags: []string{"--url", at}, env: map[string]string{"BRIG_API_KEY": givenKey}},
		"all by variables":               {env: map[string]string{"BRIG_URL": at, "BRIG_API_KEY": givenKey}},
		"the folder's key":               {},
		"the folder's key, with its URL": {flags: []string{"--url", at}},
		"not admitted by a flag":         {flags: []string{"--url", at, "--key", givenKey, "--insecure-http=false"}},
		"not admitted by a variable":     {flags: []string{"--url", at, "--key", givenKey}, env: map[string]string{"BRIG_INSECURE_HTTP": "0"}},
		"nonsense in the variable":       {flags: []string{"--url", at, "--key", givenKey}, env: map[string]string{"BRIG_INSECURE_HTTP": "maybe"}},
		"a flag against a variable": {
			flags: []string{"--url", at, "--key", givenKey, "--insecure-http=false"}, env: map[string]string{"BRIG_INSECURE_HTTP": "1"},
		},

		"admitted by a flag":       {flags: []string{"--url", at, "--key", givenKey, "--insecure-http"}, key: givenKey},
		"admitted by a variable":   {flags: []string{"--url", at, "--key", givenKey}, env: map[string]string{"BRIG_INSECURE_HTTP": "1"}, key: givenKey},
		"admitted, for the folder": {flags: []string{"--insecure-http"}, key: folderKey},
		"the loopback":             {flags: []string{"--url", "http://127.0.0.1:" + far.port, "--key", givenKey}, key: givenKey},
	} {
		t.Run(name, func(t *testing.T) {
			errs, code := runWith(t, folderServedAt(t, at, true), c.env, c.flags...)
			heard := far.told()
			if c.key != "" {
				if !strings.Contains(heard, "Authorization: Bearer "+c.key+"\r\n") {
					t.Errorf("the listener hears %q, want the key %q; %s", heard, c.key, errs)
				}
				return
			}
			if heard != "" {
				t.Errorf("the listener hears %q", heard)
			}
			if code != exitUsage || !strings.Contains(errs, "plain HTTP to 0.0.0.0") || !strings.Contains(errs, "--insecure-http") {
				t.Errorf("exit code %d, %s", code, errs)
			}
		})
	}
}
