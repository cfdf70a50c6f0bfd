package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig/api/httpapi"
)

// testServer is a server on a data folder that the test owns. It only checks
// host names and returns a fixed response.
type testServer struct {
	dir  string
	url  string // the announced URL
	stop func() // stops the server as a signal does
	done chan error
}

func serveAt(t *testing.T, listen string, h http.HandlerFunc) *testServer {
	t.Helper()
	ln, err := net.Listen("tcp", listen)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	s := &testServer{dir: folderServedAt(t, "", true), stop: stop, done: make(chan error, 1)}
	socket, err := listenSocket(ctx, s.dir)
	if err != nil {
		t.Fatal(err)
	}
	names := hosts(&config{Listen: listen}, ln)
	c := &cli{stdout: io.Discard}
	go func() {
		srv := &http.Server{Handler: httpapi.Guard(names, "", h), ReadHeaderTimeout: time.Second}
		s.done <- serveCommands{c}.listen(ctx, srv, []net.Listener{ln, socket}, s.dir, nil, slog.New(slog.DiscardHandler))
	}()
	for s.url == "" {
		select {
		case err := <-s.done:
			t.Fatal(err)
		case <-time.After(time.Millisecond):
		}
		var a announcement
		if b, err := os.ReadFile(filepath.Join(s.dir, serverFile)); err == nil && json.Unmarshal(b, &a) == nil {
			s.url = a.URL
		}
	}
	return s
}

// TestAnnouncedAddressIsReachable checks the address that a server announces if it listens on all
// addresses. It must be a reachable loopback address that is an accepted host name.
func TestAnnouncedAddressIsReachable(t *testing.T) {
	for _, listen := range []string{"127.0.0.1:0", "0.0.0.0:0", ":0", "127.0.0.2:0"} {
		var got string
		s := serveAt(t, listen, func(w http.ResponseWriter, r *http.Request) {
			got = r.Header.Get("Authorization")
			w.WriteHeader(http.StatusTeapot)
		})
		errs, _ := runWith(t, s.dir, nil, "--key", givenKey)
		s.stop()
		if err := <-s.done; err != nil {
			t.Error(err)
		}
		if got != "Bearer "+givenKey || !strings.Contains(errs, "HTTP 418") {
			t.Errorf("--listen %s announces %s, which hears %q; %s", listen, s.url, got, errs)
		}
	}
}

// TestAnnouncementEndsBeforeListener checks the order in which a server stops: it removes its
// announcement, then closes its listener, and then waits for open requests.
func TestAnnouncementEndsBeforeListener(t *testing.T) {
	begun, end := make(chan bool), make(chan bool)
	s := serveAt(t, "127.0.0.1:0", func(http.ResponseWriter, *http.Request) { close(begun); <-end })
	requestDone := make(chan error, 1)
	go func() {
		resp, err := http.Get(s.url)
		if err == nil {
			resp.Body.Close()
		}
		requestDone <- err
	}()
	<-begun
	if announced := serverOf(s.dir); announced != s.url {
		t.Errorf("before it ends it is announced at %q, not at %s", announced, s.url)
	}
	s.stop()
	for { // loop until the listener is closed
		c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err != nil {
			break
		}
		c.Close()
		time.Sleep(time.Millisecond)
	}
	if announced := serverOf(s.dir); announced != "" {
		t.Errorf("without a listener it is still announced at %s", announced)
	}
	close(end)
	if err := errors.Join(<-requestDone, <-s.done); err != nil {
		t.Error(err)
	}
}
