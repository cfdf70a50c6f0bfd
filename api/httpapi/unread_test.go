package httpapi_test

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig/api/httpapi"
)

// A client that does not read is disconnected, because writes to it fail. A slow reader stays
// connected, and a stream may be silent for longer than the limit. The connection serves
// further requests.
func TestUnreadResponseDisconnectsClient(t *testing.T) {
	const unread = 500 * time.Millisecond
	failed := make(chan error, 1)
	limiter := httpapi.NewLimiter(httpapi.Limits{Unread: unread})
	mux := http.NewServeMux()
	mux.HandleFunc("/flood", func(w http.ResponseWriter, _ *http.Request) {
		var err error
		for n := 0; err == nil && n < 1<<30; n += 1 << 20 {
			_, err = w.Write(make([]byte, 1<<20))
		}
		failed <- err
	})
	flood := func(w io.Writer) {
		var err error
		for n := 0; err == nil && n < 1<<30; n += 1 << 20 {
			_, err = w.Write(make([]byte, 1<<20))
		}
		failed <- err
	}
	mux.HandleFunc("/taken", func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		flood(conn)
	})
	mux.HandleFunc("/greet", func(w http.ResponseWriter, _ *http.Request) {
		conn, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprint(buf, "hello")
		_ = buf.Flush()
		time.Sleep(3 * unread) // silence does not count as slowness
		fmt.Fprint(conn, ", later.")
		if half, ok := conn.(interface{ CloseWrite() error }); !ok || half.CloseWrite() != nil {
			t.Error("it cannot be half closed")
		}
	})
	mux.HandleFunc("/inside", func(_ http.ResponseWriter, r *http.Request) {
		here, there := net.Pipe()
		defer there.Close()
		flood(httpapi.NewBoundedConn(r.Context(), here))
	})
	mux.HandleFunc("/silent", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "begin")
		_ = http.NewResponseController(w).Flush()
		time.Sleep(3 * unread)
		fmt.Fprintln(w, "end")
	})
	mux.HandleFunc("/large", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 16<<20)) })
	srv := httptest.NewServer(limiter.Handler(httpapi.Wrap(slog.New(slog.DiscardHandler), nil, mux)))
	defer srv.Close()
	dial := func(path string) (net.Conn, *bufio.Reader) {
		conn, err := net.Dial("tcp", strings.TrimPrefix(srv.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		_ = conn.(*net.TCPConn).SetReadBuffer(16 << 10)
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: a\r\n\r\n", path)
		return conn, bufio.NewReader(conn)
	}
	for _, path := range []string{"/flood", "/taken", "/inside"} {
		dial(path)
		select {
		case err := <-failed:
			if err == nil {
				t.Errorf("%s: the server wrote a gigabyte to a client that does not read", path)
			}
		case <-time.After(30 * time.Second):
			t.Errorf("%s: an unread answer continues", path)
		}
	}
	_, in := dial("/greet")
	if b, err := in.ReadString('.'); err != nil || b != "hello, later." {
		t.Errorf("a connection that was taken over: %q, %v", b, err)
	}
	var conn net.Conn
	conn, in = dial("/silent")
	for range 2 {
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "begin\nend\n" {
			t.Errorf("a silent stream: %q, %v", b, err)
		}
		fmt.Fprintf(conn, "GET /silent HTTP/1.1\r\nHost: a\r\n\r\n")
	}
	_, in = dial("/large")
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	total, buf := 0, make([]byte, 1<<20)
	for begin := time.Now(); ; {
		n, err := io.ReadFull(resp.Body, buf)
		total += n
		if err != nil {
			break
		}
		if time.Since(begin) < 3*unread {
			time.Sleep(unread / 4)
		}
	}
	if total != 16<<20 {
		t.Errorf("a slow reader has %d bytes of %d", total, 16<<20)
	}
}
