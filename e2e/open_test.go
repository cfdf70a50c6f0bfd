package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/brig-run/brig"
)

// openLease is the lease of the sandboxes in these tests.
const openLease = 5 * time.Second

// answerer serves a port in a sandbox. It echoes the data of upgraded connections and lines of
// text, and responds to other HTTP requests with a body that never ends.
const answerer = `
import socket, threading, time
def serve(c):
    data = c.recv(65536)
    if data.startswith(b"GET "):
        if b"upgrade" in data.lower():
            c.sendall(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        else:
            c.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            while True:
                c.sendall(b"1\r\n.\r\n")
                time.sleep(1)
        data = c.recv(65536)
    while data:
        c.sendall(data)
        data = c.recv(65536)
s = socket.create_server(("127.0.0.1", 8000))
print("listens", flush=True)
while True:
    threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
`

// openWays are the ways in which a client keeps a sandbox open. Each function opens a connection
// or process, uses it as a client does, and sends an error to broken if it fails. The returned
// function closes it.
var openWays = map[string]func(o openSandbox) (closeIt func()){
	"connection that talks every second": func(o openSandbox) func() {
		return o.talk(o.dial())
	},
	"silent connection": func(o openSandbox) func() {
		c := o.dial()
		return func() { c.Close() }
	},
	"HTTP response": func(o openSandbox) func() {
		body := o.request(http.MethodGet, false).Body
		r := bufio.NewReader(body)
		stop := o.everySecond(func() error { _, err := r.ReadByte(); return err })
		return func() {
			stop()
			body.Close()
		}
	},
	"WebSocket": func(o openSandbox) func() {
		resp := o.request(http.MethodGet, true)
		both, ok := resp.Body.(io.ReadWriteCloser)
		if !ok || resp.StatusCode != http.StatusSwitchingProtocols {
			o.t.Fatalf("the answer to an upgrade is %s", resp.Status)
		}
		return o.talk(both)
	},
	"slow upload": func(o openSandbox) func() {
		r, w := io.Pipe()
		done := make(chan bool)
		go func() {
			defer close(done)
			if _, err := o.svc.Files(o.name).Write(o.ctx, brig.Path{Name: "/workspace/slow"}, brig.FileWrite{}, r); err != nil {
				o.broken <- fmt.Errorf("upload: %w", err)
				r.CloseWithError(err)
			}
		}()
		stop := o.everySecond(func() error { _, err := w.Write([]byte("x")); return err })
		return func() {
			stop()
			w.Close()
			<-done
		}
	},
	"slow download": func(o openSandbox) func() {
		// A command would extend the lease by its timeout.
		big := brig.Path{Name: "/workspace/big"}
		if _, err := o.svc.Files(o.name).Write(o.ctx, big, brig.FileWrite{}, bytes.NewReader(make([]byte, 50<<20))); err != nil {
			o.t.Fatal(err)
		}
		_, r, err := o.svc.Files(o.name).Read(o.ctx, big, 0, -1)
		if err != nil {
			o.t.Fatal(err)
		}
		return func() { r.Close() }
	},
	"watch": func(o openSandbox) func() {
		ctx, cancel := context.WithCancel(o.ctx)
		w := watchDir(o.t, ctx, o.svc, o.name, "/workspace", true)
		go func() {
			if err := <-w.ended; ctx.Err() == nil {
				o.broken <- fmt.Errorf("watch: %w", err)
			}
		}()
		return cancel
	},
	"terminal": func(o openSandbox) func() {
		p := start(o.t, o.ctx, o.svc.Processes(o.name), brig.ProcessSpec{Command: brig.Command{Shell: "cat"}, Terminal: &brig.Terminal{Columns: 80, Rows: 24}})
		ctx, cancel := context.WithCancel(o.ctx)
		go func() {
			if err := o.svc.Processes(o.name).Attach(ctx, p.PID, 0, func(brig.ProcessEvent) error { return nil }); ctx.Err() == nil {
				o.broken <- fmt.Errorf("terminal: %w", err)
			}
		}()
		return cancel
	},
}

// openSandbox is a sandbox that a test keeps open with one of openWays.
type openSandbox struct {
	t      *testing.T
	ctx    context.Context
	s      *e2bServer
	svc    brig.Service
	name   string
	id     brig.ID
	broken chan error
	close  func() // closes the connection or process that keeps the sandbox open
}

// serve starts the answerer in the sandbox.
func (o openSandbox) serve() {
	o.t.Helper()
	start(o.t, o.ctx, o.svc.Processes(o.name), brig.ProcessSpec{Command: brig.Command{Argv: []string{"python3", "-c", answerer}}})
}

// dial connects to the answerer.
func (o openSandbox) dial() io.ReadWriteCloser {
	o.t.Helper()
	o.serve()
	for end := time.Now().Add(2 * promptTimeout); ; time.Sleep(20 * time.Millisecond) {
		c, err := o.svc.Dial(o.ctx, o.name, 8000)
		if err == nil {
			return c
		}
		if brig.KindOf(err) != brig.ConnectionFailed || time.Now().After(end) {
			o.t.Fatal(err)
		}
	}
}

// request sends a request to the answerer over E2B's API.
func (o openSandbox) request(method string, upgrade bool) *http.Response {
	o.t.Helper()
	o.serve()
	for end := time.Now().Add(2 * promptTimeout); ; time.Sleep(20 * time.Millisecond) {
		req, err := http.NewRequestWithContext(o.ctx, method, o.s.url+"/", nil)
		if err != nil {
			o.t.Fatal(err)
		}
		req.Header.Set("E2b-Sandbox-Id", string(o.id))
		req.Header.Set("E2b-Sandbox-Port", "8000")
		if upgrade {
			req.Header.Set("Connection", "Upgrade")
			req.Header.Set("Upgrade", "websocket")
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			o.t.Fatal(err)
		}
		if resp.StatusCode != http.StatusBadGateway || time.Now().After(end) { // retry until the answerer listens
			return resp
		}
		resp.Body.Close()
	}
}

// everySecond calls f every second until the returned function is called.
func (o openSandbox) everySecond(f func() error) (stop func()) {
	ctx, cancel := context.WithCancel(o.ctx)
	done := make(chan bool)
	go func() {
		defer close(done)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if err := f(); err != nil {
				o.broken <- err
				return
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// talk sends bytes to the answerer each second and reads them back.
func (o openSandbox) talk(c io.ReadWriteCloser) func() {
	stop := o.everySecond(func() error {
		if _, err := c.Write([]byte("talk\n")); err != nil {
			return err
		}
		_, err := io.ReadFull(c, make([]byte, 5))
		return err
	})
	return func() {
		stop()
		c.Close()
	}
}

// startOpen starts a server with the given maximum life of sandboxes.
func startOpen(t *testing.T, maxLife time.Duration) *e2bServer {
	t.Helper()
	config := filepath.Join(t.TempDir(), "brig.yaml")
	text := fmt.Sprintf("kernels: {idle: %v}\nlease: {default: %v, max: %v, max_life: %v}\n", openLease, openLease, min(time.Hour, maxLife), maxLife)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return startE2B(t, "--config", config)
}

// openAllWays creates a sandbox for each of openWays and opens it. Each sandbox has its own
// context, which closes the connections that a test leaves open.
func openAllWays(t *testing.T, s *e2bServer, spec brig.Spec) map[string]openSandbox {
	t.Helper()
	all := map[string]openSandbox{}
	for what, open := range openWays {
		spec := spec
		spec.Labels = map[string]string{"brig.e2b/door": "1", "brig.e2b/template": "base"}
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		o := openSandbox{t, ctx, s, s.client(), fmt.Sprintf("open-%d", len(all)), "", make(chan error, 10), nil}
		spec.Name = o.name
		b, err := o.svc.Create(ctx, spec)
		if err != nil {
			t.Fatal(err)
		}
		o.id = b.ID
		o.close = sync.OnceFunc(open(o))
		t.Cleanup(o.close)
		all[what] = o
	}
	return all
}

// awaitEnd waits until a sandbox has ended, and returns its record.
func awaitEnd(t *testing.T, s brig.Service, what, name string) *brig.Sandbox {
	t.Helper()
	for end := time.Now().Add(openLease + 2*promptTimeout); ; time.Sleep(50 * time.Millisecond) {
		b, err := s.Get(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if b.State == brig.Ended {
			return b
		}
		if time.Now().After(end) {
			t.Fatalf("%s: %s is %s until %v", what, name, b.State, b.Expires)
		}
	}
}

// wantOpen fails the test unless all sandboxes keep running until the given time, and the
// connections and processes that keep them open remain intact.
func wantOpen(t *testing.T, all map[string]openSandbox, until time.Time) {
	t.Helper()
	for failed := map[string]bool{}; time.Now().Before(until); time.Sleep(100 * time.Millisecond) {
		for what, o := range all {
			if failed[what] {
				continue
			}
			b, err := o.svc.Get(t.Context(), o.name)
			if err != nil {
				t.Fatal(err)
			}
			if failed[what] = b.State != brig.Running; failed[what] {
				t.Errorf("%s: the sandbox is %s (%+v)", what, b.State, b.Exit)
			}
			select {
			case err := <-o.broken:
				failed[what] = true
				t.Errorf("%s: %v", what, err)
			default:
			}
		}
	}
}

// openKernel creates a kernel of a Jupyter client and connects to it.
func openKernel(t *testing.T, s *e2bServer) openSandbox {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/api/kernels", strings.NewReader(`{"name":"python3"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "token "+s.server.key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var kernel struct{ ID string }
	if err := json.NewDecoder(resp.Body).Decode(&kernel); err != nil || kernel.ID == "" {
		t.Fatalf("create a kernel: %s, %v", resp.Status, err)
	}
	c, _, err := websocket.Dial(t.Context(), s.url+"/api/kernels/"+kernel.ID+"/channels?token="+s.server.key, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.CloseNow() })
	return openSandbox{t: t, svc: s.client(), name: "kernel-" + kernel.ID, close: func() { c.CloseNow() }}
}

// openSession creates a sandbox in a session of the Model Context Protocol.
func openSession(t *testing.T, s *e2bServer) openSandbox {
	t.Helper()
	c, err := sdk.NewClient(&sdk.Implementation{Name: "tests", Version: "1"}, nil).
		Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: s.url + "/mcp", HTTPClient: &http.Client{Transport: newLine(s.server.key)}, MaxRetries: -1},
			&sdk.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	r, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: "create_sandbox", Arguments: map[string]any{"name": "session", "ttl_seconds": openLease.Seconds()}})
	if err != nil || r.IsError {
		t.Fatalf("create a sandbox: %+v, %v", r, err)
	}
	return openSandbox{t: t, svc: s.client(), name: "session", close: func() { c.Close() }}
}

// TestOpenConnectionExtendsLease verifies in gVisor, over each API, that an open connection or process
// keeps a sandbox alive for several times its lease, and that the sandbox ends one lease after
// the close. The controls are a sandbox without open connections, and a sandbox of E2B's API,
// which ends at its timeout despite an open watch and connection.
//
//suite:part core full
func TestOpenConnectionExtendsLease(t *testing.T) {
	s := startOpen(t, 24*time.Hour)
	svc := s.client()
	if _, err := svc.Create(t.Context(), brig.Spec{Name: "idle", TTL: openLease}); err != nil {
		t.Fatal(err)
	}
	var e2b struct {
		ID string `json:"sandboxID"`
	}
	s.call(t, http.MethodPost, "/sandboxes", map[string]any{"templateID": "base", "timeout": openLease.Seconds()}, &e2b)
	absolute := openSandbox{t, t.Context(), s, svc, e2b.ID, brig.ID(e2b.ID), make(chan error, 10), nil}
	watch := openWays["watch"](absolute)
	defer watch()
	conn := absolute.dial()
	defer conn.Close()

	all := openAllWays(t, s, brig.Spec{TTL: openLease})
	all["kernel channel"] = openKernel(t, s)
	all["MCP session"] = openSession(t, s)
	wantOpen(t, all, time.Now().Add(2*openLease+openLease/2))
	for _, name := range []string{"idle", e2b.ID} {
		b := awaitEnd(t, svc, "control", name)
		if b.Exit.Reason != brig.LeaseExpired || b.Ended.Sub(b.Created) > openLease+promptTimeout {
			t.Errorf("control %s: it ended with %+v, %v after its creation", name, b.Exit, b.Ended.Sub(b.Created))
		}
	}
	if t.Failed() {
		return
	}
	closed := time.Now()
	for _, o := range all {
		o.close()
	}
	for what, o := range all {
		if b := awaitEnd(t, svc, what, o.name); b.Exit.Reason != brig.LeaseExpired || b.Ended.Before(closed.Add(openLease/2)) {
			t.Errorf("%s: it ended with %+v, %v after it was closed", what, b.Exit, b.Ended.Sub(closed))
		}
	}
}

// TestMaxLifeEndsOpenSandbox verifies in gVisor that a sandbox ends at its maximum life,
// regardless of open connections and processes.
//
//suite:part core full
func TestMaxLifeEndsOpenSandbox(t *testing.T) {
	const life = 4 * openLease
	s := startOpen(t, life)
	all := openAllWays(t, s, brig.Spec{TTL: openLease})
	all["kernel channel"] = openKernel(t, s)
	all["MCP session"] = openSession(t, s)
	for what, o := range all {
		if b := awaitEnd(t, s.client(), what, o.name); b.Exit.Reason != brig.LeaseExpired || (b.Ended.Sub(b.Created)-life).Abs() > openLease {
			t.Errorf("%s: it ended with %+v, %v after its creation", what, b.Exit, b.Ended.Sub(b.Created))
		}
	}
}

// TestOpenSandboxIsNotPaused verifies in gVisor that a sandbox with pause_after_ms and freeze_after_ms
// is neither paused nor frozen while a client keeps it open, and is paused afterwards. The
// control is a sandbox without open connections.
//
//suite:part core full
func TestOpenSandboxIsNotPaused(t *testing.T) {
	s := startOpen(t, 24*time.Hour)
	spec := brig.Spec{TTL: 10 * openLease, Pausable: true, PauseAfter: time.Second, FreezeAfter: 500 * time.Millisecond}
	control := spec
	control.Name = "control"
	if _, err := s.client().Create(t.Context(), control); err != nil {
		t.Fatal(err)
	}
	all := openAllWays(t, s, spec)
	wantOpen(t, all, time.Now().Add(openLease))
	awaitPaused := func(what, name string) {
		t.Helper()
		for end := time.Now().Add(2 * promptTimeout); ; time.Sleep(50 * time.Millisecond) {
			b, err := s.client().Get(t.Context(), name)
			if err == nil && b.State == brig.Paused {
				return
			}
			if time.Now().After(end) {
				t.Errorf("%s: it is %+v, %v", what, b, err)
				return
			}
		}
	}
	awaitPaused("control", "control")
	o := all["watch"]
	o.close()
	awaitPaused("watch", o.name)
}
