package main

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/client"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/internal/peersock"
)

// socketFile is the Unix socket in the data folder. The folder's owner can use the server through
// it without a key.
const socketFile = "brig.sock"

// socketURL is the URL of requests through a socket. Servers accept the host
// name, and no program resolves it.
const socketURL = "http://localhost"

// listenSocket listens on the data folder's socket. The caller must hold the folder's lock, so an
// existing socket belongs to a server that has exited.
func listenSocket(ctx context.Context, dir string) (net.Listener, error) {
	ln, err := peersock.Listen(ctx, dir, socketFile)
	if errors.Is(err, peersock.ErrNotSocket) {
		return nil, brig.Errorf(brig.NotInitialized, "%s is not a socket", filepath.Join(dir, socketFile)).WithHint("move the file away: the server needs its name")
	}
	if err != nil {
		return nil, brig.Errorf(brig.NotInitialized, "cannot listen on the socket %s", filepath.Join(dir, socketFile)).
			WithHint("use a data folder on a local file system that has Unix sockets").Because(err)
	}
	return ln, nil
}

// folderOwner returns a function that returns the actor of programs that connect through the data
// folder's socket. They act with the key in admin.key, which they could also read. The audit log
// contains the name of that key, and grants and sessions end with the key.
func folderOwner(dir string, e *engine.Engine) func(context.Context) (brig.Actor, error) {
	return func(ctx context.Context) (brig.Actor, error) {
		a, err := e.KeyByID(ctx, fileKeyID(readKey(dir)))
		if brig.KindOf(err) == brig.Unauthenticated {
			err = brig.MarkGenuine(brig.Errorf(brig.Unauthenticated, "the key in %s, with whose rights the data folder's owner acts, is missing or not valid", keyFile).
				WithHint("start brig serve again: it creates the file and registers the key").Because(err))
		}
		return a, err
	}
}

// socketOptions returns the options of a client of the data folder's server.
// The client sends no key. It checks the directory and the server's user for
// every connection, so it may outlive the server and continue with the next
// one.
func socketOptions(dir string) client.Options {
	return client.Options{URL: socketURL, Name: filepath.Join(dir, socketFile), HTTP: &http.Client{Transport: socketTransport(dir)}}
}

// socketTransport returns a transport whose connections all lead to the data
// folder's server.
func socketTransport(dir string) *http.Transport {
	return &http.Transport{
		DialContext:     func(ctx context.Context, _, _ string) (net.Conn, error) { return dialSocket(ctx, dir) },
		MaxIdleConns:    100,
		IdleConnTimeout: time.Minute, // before the server closes them
	}
}

// dialSocket connects to the data folder's server. It trusts the socket only if
// no other user could have created it. It trusts the listener only if root or
// the effective user of this process runs it. This user must own the directory.
func dialSocket(ctx context.Context, dir string) (net.Conn, error) {
	uid := os.Geteuid()
	if err := checkFolder(dir, uid); err != nil {
		return nil, err
	}
	c, err := peersock.Dial(ctx, dir, socketFile, uid)
	if err == nil || ctx.Err() != nil {
		return c, err
	}
	path := filepath.Join(dir, socketFile)
	if peer, ok := errors.AsType[*peersock.PeerError](err); ok {
		return nil, brig.Errorf(brig.NotInitialized, "a process of another user (uid %d) listens on %s", peer.UID, path).
			WithHint("find the process with ss -xlp, and remove the socket; in a container, run brig in the container of the server")
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return nil, brig.Errorf(brig.ConnectionFailed, "no server listens on %s", path).
			WithHint("start one with brig serve; restart a server of a version that has no socket").Because(err)
	}
	return nil, brig.Errorf(brig.ConnectionFailed, "cannot connect to the server at %s", path).
		WithHint("run the command as the user who runs the server").Because(err)
}
