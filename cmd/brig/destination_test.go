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

// These are the keys for the tests below: the key in the data folder, and the key that the user
// specifies.
const (
	folderKey = "brig_of-the-folder-0000000000000000000000"
	givenKey  = "brig_given-by-the-user-000000000000000000"
)

// recordingServer is a listener that records every byte that it receives.
type recordingServer struct {
	url, port string

	mu       sync.Mutex // guards received
	received bytes.Buffer
}

func listenAt(t *testing.T, address string) *recordingServer {
	t.Helper()
	ln, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	e := recordAt(t, ln)
	e.url, e.port = "http://"+ln.Addr().String(), strconv.Itoa(ln.Addr().(*net.TCPAddr).Port)
	return e
}

// listenIn listens on the socket of a data folder.
func listenIn(t *testing.T, dir string) *recordingServer {
	t.Helper()
	ln, err := listenSocket(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return recordAt(t, ln)
}

func recordAt(t *testing.T, ln net.Listener) *recordingServer {
	e := &recordingServer{}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			running.Go(func() { e.record(c) })
		}
	})
	t.Cleanup(func() { ln.Close(); running.Wait() })
	return e
}

// record records the bytes of one connection and responds to its first request.
// It also records connections without any bytes.
func (e *recordingServer) record(c net.Conn) {
	defer c.Close()
	kept := writerFunc(func(b []byte) (int, error) {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.received.Write(b)
	})
	_, _ = kept.Write([]byte("connected "))
	if _, err := http.ReadRequest(bufio.NewReader(io.TeeReader(c, kept))); err == nil {
		_, _ = io.WriteString(c, "HTTP/1.1 418 I'm a teapot\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// takeReceived returns the bytes received so far, and clears them.
func (e *recordingServer) takeReceived() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	defer e.received.Reset()
	return e.received.String()
}

// folderServedAt creates a data folder with a key and an announcement of url. If isLocked is false,
// the server has exited, but its announcement remains.
func folderServedAt(t *testing.T, url string, isLocked bool) string {
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
	if isLocked {
		lock, err := tryLock(dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { lock.Close() })
	}
	return dir
}

// runWith runs a command that calls a server. Of Brig's environment variables, only those in env
// are set.
func runWith(t *testing.T, dir string, env map[string]string, flags ...string) (errs string, code int) {
	t.Helper()
	for _, name := range []string{"BRIG_URL", "BRIG_API_KEY", "BRIG_DATA_DIR", "BRIG_CONFIG", "BRIG_INSECURE_HTTP"} {
		t.Setenv(name, env[name])
	}
	var out, err bytes.Buffer
	code = execute(append([]string{"--data-dir", dir, "sandbox", "ls"}, flags...), strings.NewReader(""), &out, &err)
	return err.String(), code
}

// TestFolderKeyIsNeverSent checks that a command never sends the data folder's key. It calls the
// folder's server through its socket, with a key only if the user has specified one. It sends a
// request over TCP only if the user has specified both a key and a URL.
func TestFolderKeyIsNeverSent(t *testing.T) {
	served, other := listenAt(t, "127.0.0.1:0"), listenAt(t, "127.0.0.1:0")
	for name, c := range map[string]struct {
		flags  []string
		env    map[string]string
		socket bool      // the socket receives a request
		key    string    // the key that the socket receives
		served string    // the key that is sent to the announced address
		other  string    // the key that the other server receives
		want   brig.Kind // the error that prevents a request; empty if a request is sent
	}{
		"no URL":                   {socket: true},
		"the address itself":       {flags: []string{"--url", served.url}, socket: true},
		"the address in BRIG_URL":  {env: map[string]string{"BRIG_URL": served.url}, socket: true},
		"with a slash":             {flags: []string{"--url", served.url + "/"}, socket: true},
		"with a path":              {flags: []string{"--url", served.url + "/below"}, socket: true},
		"in capitals":              {flags: []string{"--url", "HTTP://127.0.0.1:" + served.port}, socket: true},
		"as localhost":             {flags: []string{"--url", "http://localhost:" + served.port}, socket: true},
		"mapped into IPv6":         {flags: []string{"--url", "http://[::ffff:127.0.0.1]:" + served.port}, socket: true},
		"a flag's key":             {flags: []string{"--key", givenKey}, socket: true, key: givenKey},
		"a variable's key":         {env: map[string]string{"BRIG_API_KEY": givenKey}, socket: true, key: givenKey},
		"the address and a key":    {flags: []string{"--url", served.url, "--key", givenKey}, served: givenKey},
		"another port":             {flags: []string{"--url", other.url}, want: brig.Unauthenticated},
		"another port in BRIG_URL": {env: map[string]string{"BRIG_URL": other.url}, want: brig.Unauthenticated},
		"another port, localhost":  {flags: []string{"--url", "http://localhost:" + other.port}, want: brig.Unauthenticated},
		"another address":          {flags: []string{"--url", "http://127.0.0.2:" + served.port}, want: brig.Unauthenticated},
		"the other loopback":       {flags: []string{"--url", "http://[::1]:" + served.port}, want: brig.Unauthenticated},
		"another scheme":           {flags: []string{"--url", "https://127.0.0.1:" + served.port}, want: brig.Unauthenticated},
		"the usual port":           {flags: []string{"--url", "http://127.0.0.1"}, want: brig.Unauthenticated},
		"the address as a user":    {flags: []string{"--url", "http://127.0.0.1:" + served.port + "@127.0.0.1:" + other.port}, want: brig.InvalidArgument},
		"the address as a path":    {flags: []string{"--url", other.url + "/" + served.url}, want: brig.Unauthenticated},
		"not a server URL":         {flags: []string{"--url", "127.0.0.1:" + served.port}, want: brig.InvalidArgument},
		"an empty key":             {flags: []string{"--url", other.url, "--key", ""}, want: brig.Unauthenticated},
		"other, a flag's key":      {flags: []string{"--url", other.url, "--key", givenKey}, other: givenKey},
		"other, a variable's key": {
			flags: []string{"--url", other.url}, env: map[string]string{"BRIG_API_KEY": givenKey}, other: givenKey,
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := folderServedAt(t, served.url, true)
			socket := listenIn(t, dir)
			errs, code := runWith(t, dir, c.env, c.flags...)
			if got := socket.takeReceived(); strings.Contains(got, " HTTP/1.1") != c.socket || !c.socket && got != "" {
				t.Errorf("the socket received %q", got)
			} else if strings.Contains(got, "Authorization") != (c.key != "") || !strings.Contains(got, c.key) {
				t.Errorf("the socket received %q, want the key %q", got, c.key)
			}
			for who, got := range map[string]struct{ received, key string }{"the announced address": {served.takeReceived(), c.served}, "the other": {other.takeReceived(), c.other}} {
				if got.key == "" && got.received != "" || got.key != "" && !strings.Contains(got.received, "Authorization: Bearer "+got.key+"\r\n") {
					t.Errorf("%s received %q, want the key %q", who, got.received, got.key)
				}
			}
			// The listener is not a Brig server, so the command fails even if it sends a request.
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

// TestEquivalentURLUsesSocket checks that the command connects to the socket if a URL is equivalent
// to the announced one. The name localhost may resolve to another address, where another program
// may listen on the same port.
func TestEquivalentURLUsesSocket(t *testing.T) {
	served := listenAt(t, "127.0.0.2:0")
	other := listenAt(t, "127.0.0.1:"+served.port)
	dir := folderServedAt(t, served.url, true)
	socket := listenIn(t, dir)
	errs, _ := runWith(t, dir, nil, "--url", "http://localhost:"+served.port)
	if got := socket.takeReceived(); !strings.Contains(got, "GET /v1/sandboxes") {
		t.Errorf("the socket received %q; %s", got, errs)
	}
	if got := served.takeReceived() + other.takeReceived(); got != "" {
		t.Errorf("a listener on TCP received %q", got)
	}
}

// TestFolderKeyIsNotSentToOtherProgram checks that the client does not send the folder's key to
// another program at the address of an exited server.
func TestFolderKeyIsNotSentToOtherProgram(t *testing.T) {
	other := listenAt(t, "127.0.0.1:0")
	errs, code := runWith(t, folderServedAt(t, other.url, false), nil, "--url", other.url)
	if got := other.takeReceived(); got != "" {
		t.Errorf("it received %q", got)
	}
	if code != exitError || !strings.Contains(errs, "("+brig.Unauthenticated.Code()+")") {
		t.Errorf("exit code %d, %s", code, errs)
	}
}

// TestFolderKeyIgnoresStaleAnnouncement checks that the announcement of an earlier server is
// ignored if the current owner of the data folder is not a server.
func TestFolderKeyIgnoresStaleAnnouncement(t *testing.T) {
	other := listenAt(t, "127.0.0.1:0")
	for name, lock := range map[string]func(dir string) (*os.File, error){
		"somebody has the folder": acquireLock,
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
			if got := other.takeReceived(); got != "" {
				t.Errorf("whoever listens there now received %q", got)
			}
			if code != exitError || !strings.Contains(errs, "("+brig.Unauthenticated.Code()+")") {
				t.Errorf("exit code %d, %s", code, errs)
			}
			if announced := serverOf(dir); announced != "" {
				t.Errorf("the folder is said to be served at %s", announced)
			}
		})
	}
}

// TestKeyIsNotSentOverPlainHTTP checks that no key is sent to another host over plain HTTP unless
// the user allows it. 0.0.0.0 is not a loopback address, but a connection to it reaches the
// listener.
func TestKeyIsNotSentOverPlainHTTP(t *testing.T) {
	far := listenAt(t, "0.0.0.0:0")
	announced := "http://0.0.0.0:" + far.port
	for name, c := range map[string]struct {
		flags []string
		env   map[string]string
		key   string // the key that the listener receives; empty if it receives no key
	}{
		"a flag's key":               {flags: []string{"--url", announced, "--key", givenKey}},
		"a variable's key":           {flags: []string{"--url", announced}, env: map[string]string{"BRIG_API_KEY": givenKey}},
		"all by variables":           {env: map[string]string{"BRIG_URL": announced, "BRIG_API_KEY": givenKey}},
		"not admitted by a flag":     {flags: []string{"--url", announced, "--key", givenKey, "--insecure-http=false"}},
		"not admitted by a variable": {flags: []string{"--url", announced, "--key", givenKey}, env: map[string]string{"BRIG_INSECURE_HTTP": "0"}},
		"nonsense in the variable":   {flags: []string{"--url", announced, "--key", givenKey}, env: map[string]string{"BRIG_INSECURE_HTTP": "maybe"}},
		"a flag against a variable": {
			flags: []string{"--url", announced, "--key", givenKey, "--insecure-http=false"}, env: map[string]string{"BRIG_INSECURE_HTTP": "1"},
		},

		"admitted by a flag":     {flags: []string{"--url", announced, "--key", givenKey, "--insecure-http"}, key: givenKey},
		"admitted by a variable": {flags: []string{"--url", announced, "--key", givenKey}, env: map[string]string{"BRIG_INSECURE_HTTP": "1"}, key: givenKey},
		"the loopback":           {flags: []string{"--url", "http://127.0.0.1:" + far.port, "--key", givenKey}, key: givenKey},
	} {
		t.Run(name, func(t *testing.T) {
			errs, code := runWith(t, folderServedAt(t, announced, true), c.env, c.flags...)
			received := far.takeReceived()
			if c.key != "" {
				if !strings.Contains(received, "Authorization: Bearer "+c.key+"\r\n") {
					t.Errorf("the listener received %q, want the key %q; %s", received, c.key, errs)
				}
				return
			}
			if received != "" {
				t.Errorf("the listener received %q", received)
			}
			if code != exitUsage || !strings.Contains(errs, "plain HTTP to 0.0.0.0") || !strings.Contains(errs, "--insecure-http") {
				t.Errorf("exit code %d, %s", code, errs)
			}
		})
	}
}

// TestForeignAnnouncementsAreIgnored checks that a data folder's announcement and socket are not
// trusted if another user could have created them. Regardless of the source of the key, no request
// reaches the address or the socket. The control is a folder with the right owner and mode.
func TestForeignAnnouncementsAreIgnored(t *testing.T) {
	other := listenAt(t, "127.0.0.1:0")
	for name, c := range map[string]struct {
		folder, above os.FileMode
		sticky, good  bool
	}{
		"our own":                     {folder: 0o700, above: 0o755, good: true},
		"others may read":             {folder: 0o755, above: 0o755, good: true},
		"below a sticky folder":       {folder: 0o700, above: 0o777, sticky: true, good: true},
		"the group may write":         {folder: 0o770, above: 0o755},
		"everybody may write":         {folder: 0o707, above: 0o755},
		"below what everybody writes": {folder: 0o700, above: 0o777},
	} {
		for what, flags := range map[string][]string{
			"the folder alone":      nil,
			"the address":           {"--url", other.url},
			"the address by a name": {"--url", "http://localhost:" + other.port},
			"a key":                 {"--key", givenKey},
		} {
			t.Run(name+", "+what, func(t *testing.T) {
				above := t.TempDir()
				dir := filepath.Join(above, "data")
				if err := os.Rename(folderServedAt(t, other.url, true), dir); err != nil {
					t.Fatal(err)
				}
				socket := listenIn(t, dir)
				if c.sticky {
					c.above |= os.ModeSticky
				}
				for path, mode := range map[string]os.FileMode{dir: c.folder, above: c.above} {
					if err := os.Chmod(path, mode); err != nil {
						t.Fatal(err)
					}
				}
				errs, code := runWith(t, dir, nil, flags...)
				received, local := other.takeReceived(), socket.takeReceived()
				switch withKey := what == "a key"; {
				case c.good && (received != "" || !strings.Contains(local, "GET ") || withKey != strings.Contains(local, "Authorization: Bearer "+givenKey)):
					t.Errorf("the address received %q, the socket %q; %s", received, local, errs)
				case !c.good && received+local != "":
					t.Errorf("who may have written the folder received %q at the address, %q on the socket", received, local)
				case !c.good && (code != exitError || !strings.Contains(errs, "("+brig.NotInitialized.Code()+")")):
					t.Errorf("exit code %d, %s", code, errs)
				}
			})
		}
	}
}
