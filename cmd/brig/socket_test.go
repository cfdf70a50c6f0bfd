package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
	"github.com/brig-run/brig/client"
	"github.com/brig-run/brig/internal/peersock"
	"github.com/brig-run/brig/internal/testenv"
)

// TestClientOutlivesServer checks that a client of a socket continues with the data folder's
// next server. It must not connect between the two servers, or after the folder has become writable
// for other users.
func TestClientOutlivesServer(t *testing.T) {
	dir := folderServedAt(t, "", true)
	svc, err := client.New(socketOptions(dir))
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	serve := func() (end func()) {
		ln, err := listenSocket(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		srv := httpapi.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_ = httpapi.WriteJSON(w, http.StatusOK, map[string]any{"alerts": []any{}})
		}), log)
		served := make(chan error, 1)
		go func() { served <- srv.Serve(ln) }()
		return func() {
			if err := srv.Close(); err != nil || !errors.Is(<-served, http.ErrServerClosed) {
				t.Error(err)
			}
		}
	}
	ask := func(want brig.Kind) {
		t.Helper()
		if _, err := svc.Alerts(t.Context()); brig.KindOf(err) != want {
			t.Errorf("%v, want %q", err, want)
		}
	}
	ask(brig.ConnectionFailed)
	for range 3 {
		end := serve()
		ask("")
		ask("")
		end()
		ask(brig.ConnectionFailed)
	}
	// The client does not trust a server whose directory has become writable by other users.
	defer serve()()
	if err := os.Chmod(dir, 0o770); err != nil {
		t.Fatal(err)
	}
	ask(brig.NotInitialized)
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	ask("")
}

// TestOtherUsersSocketIsRejected checks that a command sends no data to another user's socket,
// even if the caller owns the folder. The control is a listener of the same user.
func TestOtherUsersSocketIsRejected(t *testing.T) {
	open := testenv.OpenDir(t)
	dir := filepath.Join(open, "data")
	if err := os.Rename(folderServedAt(t, "http://127.0.0.1:1", true), dir); err != nil {
		t.Skip(err) // the directories are on different file systems
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	var ln net.Listener
	err := testenv.RunAsUser(t, testenv.OtherUser, func() (err error) {
		ln, err = peersock.Listen(context.Background(), dir, socketFile)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	theirs := recordAt(t, ln)
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	errs, code := runWith(t, dir, nil)
	if code != exitError || !strings.Contains(errs, "a process of another user (uid 61111) listens on") {
		t.Errorf("exit code %d, %s", code, errs)
	}
	if got := strings.TrimSpace(theirs.takeReceived()); got != "connected" && got != "" {
		t.Errorf("another user hears %q", got)
	}
	ours := listenIn(t, dir)
	if errs, _ = runWith(t, dir, nil); !strings.Contains(ours.takeReceived(), "GET /v1/sandboxes") {
		t.Errorf("the control does not connect: %s", errs)
	}
}

// TestListenSocketReportsUnusableDirectory checks the errors for a directory in which the server
// cannot listen.
func TestListenSocketReportsUnusableDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, socketFile), 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := listenSocket(t.Context(), dir)
	if e := brig.AsError(err); e == nil || e.Kind != brig.NotInitialized || !strings.Contains(e.Message, "is not a socket") {
		t.Errorf("a folder in the place of the socket: %v", err)
	}
	_, err = listenSocket(t.Context(), filepath.Join(dir, "none"))
	if e := brig.AsError(err); e == nil || e.Kind != brig.NotInitialized || e.Hint == "" {
		t.Errorf("no folder: %v", err)
	}
}
