package rest_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// testTimeout is how long a test waits for an event that should arrive
// immediately.
const testTimeout = 30 * time.Second

func waitForEnd(t *testing.T, s *stub) {
	t.Helper()
	select {
	case err := <-s.ended:
		if err == nil {
			t.Error("it ended without an error")
		}
	case <-time.After(testTimeout):
		t.Fatal("the service did not detect that the client disconnected")
	}
}

// cancelAfter returns a context that is canceled some time after the call of the Service
// begins, because there is nothing to cancel earlier.
func cancelAfter(t *testing.T, s *stub, after time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s.record(nil)
	go func() {
		defer cancel()
		for s.lastArguments() == nil && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(after)
	}()
	return ctx
}

// TestDisconnect verifies that the call's context is canceled when the client disconnects, for
// every form of request, and even without output.
func TestDisconnect(t *testing.T) {
	for name, c := range map[string]struct{ path, kind, accept, body string }{
		"run":         {"/v1/run", "application/json", "", `{"language":"bash","code":"wait"}`},
		"run stream":  {"/v1/run", "application/json", "", `{"language":"bash","code":"wait","stream":true}`},
		"exec":        {"/v1/sandboxes/box/exec", "application/json", "", `{"command":["wait"]}`},
		"exec stream": {"/v1/sandboxes/box/exec", "application/json", "", `{"command":["wait"],"stream":true}`},
		"exec sse":    {"/v1/sandboxes/box/exec", "application/json", "text/event-stream", `{"command":["wait"]}`},
		"flood":       {"/v1/sandboxes/box/exec", "application/json", "", `{"command":["flood"],"stream":true}`},
	} {
		t.Run(name, func(t *testing.T) {
			s, srv := serve(t)
			// The client disconnects after the call has begun, because the Service would not
			// notice an earlier disconnect.
			ctx := cancelAfter(t, s, 50*time.Millisecond)
			req, err := http.NewRequestWithContext(ctx, "POST", srv.URL+c.path, strings.NewReader(c.body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+key)
			req.Header.Set("Content-Type", c.kind)
			req.Header.Set("Accept", c.accept)
			if resp, err := http.DefaultClient.Do(req); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
			waitForEnd(t, s)
		})
	}
}

// dialExec starts an exec whose standard input follows in the request body.
func dialExec(t *testing.T, addr, first string) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(addr, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(testTimeout)); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "POST /v1/sandboxes/box/exec HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n", key)
	writeChunk(conn, first+"\n")
	return conn, bufio.NewReader(conn)
}

func writeChunk(w io.Writer, s string) { fmt.Fprintf(w, "%x\r\n%s\r\n", len(s), s) }

// readUntil reads lines until one contains want.
func readUntil(t *testing.T, r *bufio.Reader, want string) {
	t.Helper()
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("waiting for %s: %v", want, err)
		}
		if strings.Contains(line, want) {
			return
		}
	}
}

// TestInteractiveExec verifies that the output of a process arrives before its input has ended,
// and that the response ends with the process even if the input is still open.
func TestInteractiveExec(t *testing.T) {
	_, srv := serve(t)
	conn, r := dialExec(t, srv.URL, `{"command":["parrot"]}`)
	for _, word := range []string{"one", "two", "three"} {
		writeChunk(conn, `{"stdin":"`+word+`"}`+"\n")
		readUntil(t, r, `"data":"`+word+`"`)
	}
	writeChunk(conn, `{"close_stdin":true}`+"\n")
	readUntil(t, r, `"event":"result"`)

	conn, r = dialExec(t, srv.URL, `{"command":["echo","bye"]}`)
	readUntil(t, r, `"event":"result"`)
	if _, err := io.Copy(io.Discard, r); err != nil {
		t.Errorf("the answer did not end: %v", err)
	}
	_ = conn.Close()
}

// TestDisconnectWithOpenInput checks that a disconnect ends the call even while
// the server reads input.
func TestDisconnectWithOpenInput(t *testing.T) {
	s, srv := serve(t)
	conn, r := dialExec(t, srv.URL, `{"command":["wait"]}`)
	readUntil(t, r, "started")
	_ = conn.Close()
	waitForEnd(t, s)
}

// TestBackPressure verifies that the writer blocks if the client does not read.
func TestBackPressure(t *testing.T) {
	s, srv := serve(t)
	req, err := http.NewRequestWithContext(t.Context(), "POST", srv.URL+"/v1/sandboxes/box/exec", strings.NewReader(`{"command":["flood"],"stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-s.ended:
		t.Error("the flood ended")
	case <-time.After(100 * time.Millisecond):
	}
	var got bytes.Buffer
	if _, err := io.CopyN(&got, resp.Body, 4<<20); err != nil {
		t.Errorf("the stream broke: %v", err)
	}
	_ = resp.Body.Close()
	waitForEnd(t, s)
}
