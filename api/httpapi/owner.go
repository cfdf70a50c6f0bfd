package httpapi

import (
	"context"
	"crypto/sha256"
	"net"
	"net/http"
	"os"
	"slices"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/peersock"
)

type peerKey struct{}

// withPeer is the ConnContext of every server. For a connection over a Unix
// socket, it records whether the peer is a process of the server's own user or
// of root.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return ctx
	}
	uid, err := peersock.UID(u)
	return context.WithValue(ctx, peerKey{}, err == nil && peersock.IsTrusted(uid, os.Geteuid()))
}

// rejectPeers rejects connections over a Unix socket from other users, whatever
// credentials they send. The file mode of the socket already excludes these
// users unless the mode was changed. It also rejects requests that a reverse
// proxy sends over the socket, because its clients would have the owner's
// rights.
func rejectPeers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		trusted, local := r.Context().Value(peerKey{}).(bool)
		proxied := func(name string) bool { return len(r.Header.Values(name)) > 0 }
		if local && (!trusted || proxied("Via") || slices.ContainsFunc(forwardedHeaders, proxied)) {
			w.Header().Set("Connection", "close")
			fail(w, r, brig.Errorf(brig.PermissionDenied, "this socket is only for programs of the user who runs the server, and of root").
				WithHint("run the command as that user, or use the server's URL with an API key; let a proxy use the URL"))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// IsFromOwner reports whether a program of the server's own user or of root sent
// r over the server's Unix socket without a credential. A key in the request
// takes precedence. For a browser's request, IsFromOwner always returns false,
// because a program may forward connections to the socket.
func IsFromOwner(r *http.Request) bool {
	trusted, _ := r.Context().Value(peerKey{}).(bool)
	for _, name := range []string{"Authorization", "Origin", "Sec-Fetch-Site", "Cookie"} {
		trusted = trusted && len(r.Header.Values(name)) == 0
	}
	return trusted
}

// verifyOwner returns the proof of a request for which IsFromOwner reports true.
func (k *Keyring) verifyOwner(r *http.Request) (Proof, error) {
	return k.verify(r, Proof{name: sha256.Sum256([]byte("\x00owner")), check: k.Owner})
}
