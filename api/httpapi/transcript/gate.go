package transcript

import (
	"bytes"
	"context"
	"crypto/sha256"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/brig-run/brig"
)

// RoleKeys has one key for every role of the tenant acme.
type RoleKeys struct{}

// KeyOf returns the key of a role.
func KeyOf(r brig.Role) string { return "brig_" + strings.Repeat(r.String(), 10)[:40] }

// KeyActor implements httpapi.Keys.
func (RoleKeys) KeyActor(_ context.Context, hash [32]byte) (brig.Actor, error) {
	for r := brig.Viewer; r <= brig.Operator; r++ {
		if hash == sha256.Sum256([]byte(KeyOf(r))) {
			return brig.Actor{Name: r.String(), Tenant: "acme", Role: r, Key: r.String()}, nil
		}
	}
	return brig.Actor{}, brig.Errorf(brig.Unauthenticated, "no such key")
}

// AuthorizedRequest is a request that needs a role.
type AuthorizedRequest struct {
	Method, Path string
	Role         brig.Role
	Header       []string // names and values
}

// CheckAuthorization sends every request with the key of every role, with a
// long body. It reports an error if the body was read although the role is
// not authorized. As a control, it checks that the body is read for an
// authorized role.
func CheckAuthorization(t *testing.T, h http.Handler, all []AuthorizedRequest) {
	t.Helper()
	for _, g := range all {
		for role := brig.Nobody; role <= brig.Operator; role++ {
			headers := g.Header
			if role > brig.Nobody {
				headers = append([]string{"Authorization", "Bearer " + KeyOf(role), "X-Api-Key", KeyOf(role)}, headers...)
			}
			w, read := SendLong(h, g.Method, g.Path, headers...)
			refused := w.Code == http.StatusUnauthorized || w.Code == http.StatusForbidden
			if may := role >= g.Role; may == refused || may != read {
				t.Errorf("%s %s as %s: %d, the body was read: %v; it needs %s", g.Method, g.Path, role, w.Code, read, g.Role)
			}
		}
	}
}

// SendLong sends a request with a body that is cut off after 1 MiB, and reports
// whether any part of the body was read. The body is JSON unless a header sets
// another type.
func SendLong(h http.Handler, method, path string, headers ...string) (w *httptest.ResponseRecorder, read bool) {
	body := &longBody{}
	r := httptest.NewRequest(method, path, body)
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w = httptest.NewRecorder()
	h.ServeHTTP(duplexRecorder{w}, r)
	return w, body.read
}

// duplexRecorder is a recorder whose response may begin before the body has
// been read.
type duplexRecorder struct{ *httptest.ResponseRecorder }

// EnableFullDuplex implements the method for http.ResponseController.
func (duplexRecorder) EnableFullDuplex() error { return nil }

// longBody is the beginning of a JSON document: a long sequence of opening
// brackets that is cut off.
type longBody struct {
	read bool
	n    int
}

var brackets = bytes.Repeat([]byte("["), 32<<10)

// Read implements io.Reader.
func (b *longBody) Read(p []byte) (int, error) {
	b.read = true
	if b.n >= 1<<20 {
		return 0, io.ErrUnexpectedEOF
	}
	n := copy(p, brackets)
	b.n += n
	return n, nil
}
