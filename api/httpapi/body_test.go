package httpapi

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"
)

// sendSlowly sends a request with an endless body, one byte at a time, until the server closes
// the connection. It returns the status and whether the server still accepted bytes after
// patience.
func sendSlowly(addr, headers string, patience time.Duration) (status int, listening bool) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return 0, false
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: localhost\r\n%sTransfer-Encoding: chunked\r\n\r\n", headers)
	statusCh := make(chan int, 1)
	go func() {
		defer close(statusCh)
		r := bufio.NewReader(conn)
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			return
		}
		statusCh <- resp.StatusCode
		_, _ = io.Copy(io.Discard, r) // until the connection is closed
	}()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if _, err := io.WriteString(conn, "1\r\nx\r\n"); err != nil {
			return <-statusCh, false
		}
	}
	return 0, true
}

// A client without a valid key cannot keep a connection open with an endless
// body. A client with a valid key may send its body slowly.
func TestEndlessBodyTimesOut(t *testing.T) {
	read := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var late net.Error
		if _, err := io.Copy(io.Discard, r.Body); errors.As(err, &late) && late.Timeout() {
			w.WriteHeader(http.StatusRequestTimeout)
		}
	})
	open := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	var all sync.WaitGroup
	defer all.Wait()
	for _, c := range []struct {
		name, headers string
		h             http.Handler
		status        int // 0 if the server keeps reading
	}{
		{"no key", "", Auth(&singleKey{}, read), 401},
		{"a wrong key", "Authorization: Bearer " + goodKey[:44] + "x\r\n", Auth(&singleKey{}, read), 401},
		{"another site's page", "Sec-Fetch-Site: cross-site\r\n", Guard(nil, "", read), 403},
		{"a route that is open", "", open, 204},
		{"a route that is open and reads", "", read, 408},
		{"a key", "Authorization: Bearer " + goodKey + "\r\n", Auth(&singleKey{}, read), 0},
	} {
		log := slog.New(slog.DiscardHandler)
		srv := httptest.NewUnstartedServer(nil)
		srv.Config = NewServer(Wrap(log, nil, c.h), log)
		srv.Start()
		patience := bodyTimeout / 2 // far from both limits
		if c.status == 0 {
			patience = 2 * anonymousTimeout
		}
		all.Go(func() {
			defer srv.Close()
			status, listening := sendSlowly(srv.Listener.Addr().String(), c.headers, patience)
			if status != c.status || listening != (c.status == 0) {
				t.Errorf("%s: status %d, still listening %v", c.name, status, listening)
			}
		})
	}
}
