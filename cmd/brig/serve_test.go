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

	"github.com/brig-run/brig/door"
)

// serving is a server of a data folder that this test owns, with nothing but
// the guard of host names in front of an answer.
type serving struct {
	dir  string
	url  string // as it is announced
	stop func() // as a signal does
	done chan error
}

func serveAt(t *testing.T, listen string, h http.HandlerFunc) *serving {
	t.Helper()
	ln, err := net.Listen("tcp", listen)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	s := &serving{dir: folderServedAt(t, "", true), stop: stop, done: make(chan error, 1)}
	names := hosts(&config{Listen: listen}, ln)
	c := &cli{stdout: io.Discard}
	go func() {
		srv := &http.Server{Handler: door.Guard(names, "", h), ReadHeaderTimeout: time.Second}
		s.done <- c.listen(ctx, srv, ln, s.dir, slog.New(slog.DiscardHandler))
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

// A server that listens on all addresses announces one at which it is reached,
// by a name that it goes by, in plain HTTP that does not leave the machine.
func TestAnnouncedAddress(t *testing.T) {
	for _, listen := range []string{"127.0.0.1:0", "0.0.0.0:0", ":0", "127.0.0.2:0"} {
		var got string
		s := serveAt(t, listen, func(w http.ResponseWriter, r *http.Request) {
			got = r.Header.Get("Authorization")
			w.WriteHeader(http.StatusTeapot)
		})
		errs, _ := runWith(t, s.dir, nil)
		s.stop()
		if err := <-s.done; err != nil {
			t.Error(err)
		}
		if got != "Bearer "+folderKey || !strings.Contains(errs, "HTTP 418") {
			t.Errorf("--listen %s announces %s, which hears %q; %s", listen, s.url, got, errs)
		}
	}
}

// A server that ends lets go of its address before its requests have ended:
// then it is announced no more.
func TestAnnouncementEndsBeforeTheListener(t *testing.T) {
	begun, end := make(chan bool), make(chan bool)
	s := serveAt(t, "127.0.0.1:0", func(http.ResponseWriter, *http.Request) { close(begun); <-end })
	asked := make(chan error, 1)
	go func() {
		resp, err := http.Get(s.url)
		if err == nil {
			resp.Body.Close()
		}
		asked <- err
	}()
	<-begun
	if at := servedBy(s.dir); at != s.url {
		t.Errorf("before it ends it is announced at %q, not at %s", at, s.url)
	}
	s.stop()
	for { // until nobody listens any more
		c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err != nil {
			break
		}
		c.Close()
		time.Sleep(time.Millisecond)
	}
	if at := servedBy(s.dir); at != "" {
		t.Errorf("without a listener it is still announced at %s", at)
	}
	close(end)
	if err := errors.Join(<-asked, <-s.done); err != nil {
		t.Error(err)
	}
}
