package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/client"
)

// configured starts a server with the given configuration.
func configured(t *testing.T, text string, env ...string) *server {
	t.Helper()
	config := filepath.Join(t.TempDir(), "brig.yaml")
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := launchServer(t, bin(t, "brig"), env, dataDir(t), "--pool", "-1", "--config", config)
	s.await()
	return s
}

// keyOf creates a key with a role and returns it.
func (s *server) keyOf(c *client.Client, role brig.Role) string {
	s.t.Helper()
	k, err := c.CreateKey(s.t.Context(), brig.KeySpec{Name: role.String(), Role: role})
	if err != nil {
		s.t.Fatal(err)
	}
	return k.Secret
}

// openEndless sends a request whose response does not end, and returns the response's status, and
// its Retry-After header and body if it is an error. The test's cleanup closes the connection.
func (s *server) openEndless(key, path string) (status int, retry, body string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.url+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := (&http.Transport{}).RoundTrip(req)
	if err != nil {
		s.t.Fatal(err)
	}
	if resp.StatusCode == http.StatusOK {
		s.t.Cleanup(func() { resp.Body.Close() })
		return resp.StatusCode, "", ""
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header.Get("Retry-After"), string(b)
}

// TestWatchesOfViewersAreBounded verifies that a sandbox of 256 MiB keeps running, and that other
// clients can use it, download its files and watch them, while a viewer opens as many watches and
// process attachments as possible. The control is a server with a higher limit, which accepts
// more.
//
//suite:part hostile
func TestWatchesOfViewersAreBounded(t *testing.T) {
	// A single key may use half of the sandbox's streams.
	for bound, config := range map[int]string{128: "streams: {}\n", 200: "streams: {sandbox: 400}\n"} {
		t.Run(fmt.Sprint(bound), func(t *testing.T) {
			s := configured(t, config)
			c, ctx := s.client(), t.Context()
			if _, err := c.Create(ctx, brig.Spec{Name: "one", TTL: time.Hour, Limits: brig.Limits{Memory: 256 * brig.MiB}}); err != nil {
				t.Fatal(err)
			}
			p, err := c.Processes("one").Start(ctx, brig.ProcessSpec{Command: brig.Command{Argv: []string{"sleep", "600"}}})
			if err != nil {
				t.Fatal(err)
			}
			viewer := s.keyOf(c, brig.Viewer)
			open := func(path string, limit int) (n int) {
				for n < limit {
					status, retry, body := s.openEndless(viewer, path)
					if status == http.StatusOK {
						n++
						continue
					}
					if status != http.StatusTooManyRequests || retry == "" || !strings.Contains(body, brig.RateLimited.Code()) {
						t.Fatalf("after %d of %s: %d, Retry-After %q, %s", n, path, status, retry, body)
					}
					return n
				}
				return n
			}
			watches := open("/v1/sandboxes/one/files/watch?path=/&recursive=false", bound-8)
			attached := open(fmt.Sprintf("/v1/sandboxes/one/processes/%d/output", p.PID), 2*bound)
			if watches+attached != bound {
				t.Errorf("%d watches and %d attached clients are open, want %d in all", watches, attached, bound)
			}
			admin := s.keyOf(c, brig.Admin)
			for _, path := range []string{"/v1/sandboxes/one/files/watch?path=/&recursive=false", "/v1/sandboxes/one/files/content?path=/etc/hostname"} {
				if status, _, body := s.openEndless(admin, path); status != http.StatusOK {
					t.Errorf("another key's %s: %d %s", path, status, body)
				}
			}
			res, err := c.Exec(ctx, "one", brig.Command{Argv: []string{"echo", "alive"}}, brig.IO{})
			if err != nil || string(res.Stdout.Head) != "alive\n" {
				t.Errorf("another key's command: %+v, %v", res, err)
			}
			if b, err := c.Get(ctx, "one"); err != nil || b.State != brig.Running {
				t.Errorf("%+v, %v", b, err)
			}
		})
	}
}

// fillPipeProgram writes until its output pipe is full, and then exits.
const fillPipeProgram = `import os, sys, time
os.set_blocking(1, False)
full = 0
while full < 20:
    try:
        os.write(1, b"x" * 4095 + b"\n")
        full = 0
    except BlockingIOError:
        full += 1
        time.sleep(0.1)
os._exit(7)`

// startUnreadStream starts an execution with streamed output, and returns the connection without
// reading the stream.
func (s *server) startUnreadStream(box, code string) net.Conn {
	s.t.Helper()
	body, err := json.Marshal(map[string]any{"command": []string{"python3", "-c", code}, "timeout_ms": 600_000, "stream": true})
	if err != nil {
		s.t.Fatal(err)
	}
	d := net.Dialer{}
	conn, err := d.DialContext(s.t.Context(), "tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	if err := conn.(*net.TCPConn).SetReadBuffer(8 << 10); err != nil {
		s.t.Fatal(err)
	}
	var head bytes.Buffer
	fmt.Fprintf(&head, "POST /v1/sandboxes/%s/exec HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\nAccept: application/x-ndjson\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", box, s.key, len(body))
	if _, err := conn.Write(append(head.Bytes(), body...)); err != nil {
		s.t.Fatal(err)
	}
	return conn
}

// TestUnreadStreamsAreBounded verifies that the server's memory is bounded if clients do not read the
// output streams that they requested. A program that has ended must be recorded as such, and a
// blocked program must end when the client's time has expired.
//
//suite:part hostile waits
func TestUnreadStreamsAreBounded(t *testing.T) {
	// Collect garbage often, so that the heap size reflects the memory in use. The timeout is
	// long, so that the first stream is still open when the last one begins, even on a loaded
	// machine.
	s := configured(t, "requests: {unread: 90s}\n", "GOGC=5")
	c, ctx := s.client(), t.Context()
	if _, err := c.Create(ctx, brig.Spec{Name: "one", TTL: time.Hour, Limits: brig.Limits{Memory: brig.GiB, Output: 64 << 10}}); err != nil {
		t.Fatal(err)
	}
	heap := func() float64 { // the least of some samples, because each includes garbage
		least := s.scrape().sum("go_memstats_heap_alloc_bytes")
		for range 9 {
			time.Sleep(100 * time.Millisecond)
			least = min(least, s.scrape().sum("go_memstats_heap_alloc_bytes"))
		}
		return least
	}
	const waiting, ending = 8, 8
	count := func() (done, sevens, running int) {
		list, err := c.ListExecs(ctx, "one")
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range list {
			switch {
			case !x.Done:
				running++
			case x.ExitCode == 7:
				sevens++
			}
			if x.Done {
				done++
			}
		}
		return done, sevens, running
	}
	before := heap()
	for range waiting {
		s.startUnreadStream("one", `while True: print("x" * 4095)`)
	}
	for end := time.Now().Add(promptTimeout); ; time.Sleep(200 * time.Millisecond) {
		done, _, running := count()
		if running == waiting {
			break
		}
		if done > 0 || time.Now().After(end) {
			t.Fatalf("%d have ended, %d run", done, running)
		}
	}
	time.Sleep(3 * time.Second) // wait until the buffers are full
	after := heap()
	each := (after - before) / waiting / 1024
	t.Logf("an unread stream takes %.0f KiB of the heap", each)
	if each > 1024 {
		t.Errorf("an unread stream takes %.0f KiB of the heap", each)
	}
	for range ending {
		s.startUnreadStream("one", fillPipeProgram)
	}
	for end := time.Now().Add(4 * promptTimeout); ; time.Sleep(200 * time.Millisecond) {
		done, sevens, running := count()
		if sevens == ending {
			break
		}
		if done > sevens {
			t.Fatalf("%d of the first streams have ended", done-sevens)
		}
		if time.Now().After(end) {
			t.Fatalf("%d have ended, %d of %d by themselves, %d run", done, sevens, ending, running)
		}
	}
	each = (heap() - after) / ending / 1024
	t.Logf("one whose program has ended takes %.0f KiB", each)
	if each > 3072 {
		t.Errorf("an unread stream, of a program that has ended, takes %.0f KiB of the heap", each)
	}
	for end := time.Now().Add(promptTimeout + 120*time.Second); ; time.Sleep(time.Second) {
		if done, _, running := count(); running == 0 && done == ending+waiting {
			break
		} else if time.Now().After(end) {
			t.Fatalf("%d have ended, %d run", done, running)
		}
	}
	if res, err := c.Exec(ctx, "one", brig.Command{Argv: []string{"echo", "alive"}}, brig.IO{}); err != nil || res.ExitCode != 0 {
		t.Errorf("afterwards: %+v, %v", res, err)
	}
}

// TestRequestsAreRejectedBeforeBodies verifies that a server rejects a viewer's requests with bodies of 60 MB
// without reading the bodies.
//
//suite:part hostile
func TestRequestsAreRejectedBeforeBodies(t *testing.T) {
	s := configured(t, "requests: {}\n")
	c := s.client()
	viewer := s.keyOf(c, brig.Viewer)
	for _, path := range []string{"/v1/run", "/v1/sandboxes/none/exec", "/v2/sandboxes", "/v1/tools/run", "/api/kernels", "/api/v1/admin/sandbox/config"} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		header := "Authorization: Bearer "
		if strings.HasPrefix(path, "/v2/") {
			header = "X-Api-Key: "
		}
		fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\n%s%s\r\nContent-Type: application/json\r\nContent-Length: 60000000\r\n\r\n", path, header, viewer)
		answer := make([]byte, 32)
		_ = conn.SetReadDeadline(time.Now().Add(promptTimeout))
		// The test does not send the body, so a response proves that the server does not wait for
		// it.
		if n, err := conn.Read(answer); err != nil || !strings.Contains(string(answer[:n]), " 403 ") {
			t.Errorf("%s: %q, %v", path, answer[:n], err)
		}
		conn.Close()
	}
}
