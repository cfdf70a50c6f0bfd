package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/v1"
)

// Limits of bodies that are read into memory, in bytes. They do not apply to
// archives and files, which are streamed. MaxBody is for bodies with programs,
// data or input, and SmallBody for all others.
const (
	MaxBody   = 64 << 20
	SmallBody = 4 << 20
)

// bodyTimeout and anonymousTimeout limit the time for a client to send a body,
// with and without a valid key or token.
var bodyTimeout = 2 * time.Minute

const anonymousTimeout = 3 * time.Second

// timedBody is a body with a time limit. The connection has a read deadline
// only while the body is read: afterwards net/http continues to read from the
// connection, to detect a disconnect.
type timedBody struct {
	io.ReadCloser
	rc *http.ResponseController
	// each is the time limit of each read of the body. It is zero if the limit
	// applies to the whole body or there is no limit.
	each time.Duration
	done bool
}

// Read implements io.Reader.
func (t *timedBody) Read(p []byte) (int, error) {
	if t.each > 0 && !t.done {
		t.setDeadline(t.each)
	}
	n, err := t.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) && !t.done {
		t.done = true
		t.setDeadline(0)
	}
	return n, err
}

// setDeadline sets the read deadline to d from now, or removes it if d is zero.
func (t *timedBody) setDeadline(d time.Duration) {
	var deadline time.Time
	if d > 0 {
		deadline = time.Now().Add(d)
	}
	_ = t.rc.SetReadDeadline(deadline) // a writer without deadlines, as in tests, needs none
}

// restrictBody sets the time limit of unauthenticated clients for r's body,
// whether or not the body is read. AllowBody changes the limit.
func restrictBody(w http.ResponseWriter, r *http.Request) {
	if r.Body == nil || r.Body == http.NoBody {
		return
	}
	t := &timedBody{ReadCloser: r.Body, rc: http.NewResponseController(w)}
	r.Body = t
	t.setDeadline(anonymousTimeout)
}

// extendBody limits the time for reading r's body to d in total and to each per
// read.
func extendBody(r *http.Request, d, each time.Duration) {
	if t, ok := r.Body.(*timedBody); ok && !t.done {
		t.each = each
		t.setDeadline(max(d, each))
	}
}

// AllowBody gives r's body the time limit of authenticated clients. Call it
// before reading the body.
func AllowBody(r *http.Request) { extendBody(r, bodyTimeout, 0) }

// AllowLongBody permits a streamed body of any duration. It limits only the pauses
// between reads.
func AllowLongBody(r *http.Request) { extendBody(r, 0, bodyTimeout) }

// AllowOpenBody removes all time limits of r's body. It is for a body that may pause
// for hours, such as the input of a terminal.
func AllowOpenBody(r *http.Request) { extendBody(r, 0, 0) }

// ReadBody reads r's body into memory, where it stays until the request has
// been answered. The body counts towards the memory budget of the tenant.
func ReadBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	if r.ContentLength > limit {
		return nil, BodyError(&http.MaxBytesError{Limit: limit}) // before any part of the body is read
	}
	lease, tenant := LeaseOf(r.Context()), brig.ActorFrom(r.Context()).Tenant
	from := http.MaxBytesReader(w, r.Body, limit)
	var body []byte
	for {
		if len(body) == cap(body) {
			size := int64(max(2*cap(body), 4<<10))
			if n := r.ContentLength + 1; n > 0 { // one more byte, to detect the end
				size = min(size, n)
			}
			if size = min(size, limit+1); size <= int64(cap(body)) {
				size = int64(cap(body)) + 512
			}
			if err := lease.Reserve(tenant, size-int64(cap(body))); err != nil {
				return nil, err
			}
			body = append(make([]byte, 0, size), body...)
		}
		n, err := from.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if errors.Is(err, io.EOF) {
			return body, nil
		}
		if err != nil {
			return nil, BodyError(err)
		}
	}
}

// ReadDocument is like ReadBody for a JSON body. The body may be empty. It
// rejects a document that exceeds the limits of CheckShape.
func ReadDocument(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	body, err := ReadBody(w, r, limit)
	if err == nil {
		err = CheckShape(body)
	}
	return body, err
}

// ReadJSON strictly decodes r's body into v. If optional is true, an empty body
// leaves v unchanged.
func ReadJSON(w http.ResponseWriter, r *http.Request, v any, optional bool) error {
	body, err := readJSONBody(w, r, optional)
	if err != nil || len(body) == 0 {
		return err
	}
	return DecodeDescribed(body, v)
}

// ReadJSONBody reads and checks a body as ReadJSON does. The caller decodes it,
// possibly several times.
func ReadJSONBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	return readJSONBody(w, r, false)
}

func readJSONBody(w http.ResponseWriter, r *http.Request, optional bool) ([]byte, error) {
	if r.ContentLength > 0 {
		if err := CheckMediaType(r, v1.JSON); err != nil {
			return nil, err // before the body is read
		}
	}
	body, err := ReadBody(w, r, maxBodyOf(r))
	if err != nil {
		return nil, err
	}
	if len(body) == 0 {
		if optional {
			return nil, nil
		}
		return nil, brig.Errorf(brig.InvalidArgument, "the request has no body").WithHint("send a JSON object")
	}
	return body, CheckMediaType(r, v1.JSON)
}

type maxBodyKey struct{}

// WithMaxBody returns a copy of r with a limit for its body, in bytes.
func WithMaxBody(r *http.Request, limit int64) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), maxBodyKey{}, limit))
}

// maxBodyOf returns the limit of r's body, in bytes.
func maxBodyOf(r *http.Request) int64 {
	if limit, ok := r.Context().Value(maxBodyKey{}).(int64); ok {
		return limit
	}
	return SmallBody
}

// CheckMediaType returns an error unless r's body has one of the given types.
// Browsers send these types across sites only after a preflight.
func CheckMediaType(r *http.Request, want ...string) error {
	got, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	charset := params["charset"]
	for _, t := range want {
		if err == nil && got == t && (charset == "" || strings.EqualFold(charset, "utf-8")) {
			return nil
		}
	}
	e := brig.Errorf(brig.InvalidArgument, "the body's Content-Type is not one that this takes").
		WithHint("send the header Content-Type: %s", strings.Join(want, " or "))
	return WithStatus(http.StatusUnsupportedMediaType, e)
}

// BodyError translates an error from reading a request's body.
func BodyError(err error) error {
	if tooBig, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return WithStatus(http.StatusRequestEntityTooLarge,
			brig.Errorf(brig.InvalidArgument, "the body is larger than %s", brig.FormatBytes(tooBig.Limit)))
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return WithStatus(http.StatusRequestTimeout,
			brig.Errorf(brig.InvalidArgument, "the body did not arrive in time").WithHint("send the whole body within %s", bodyTimeout).Because(err))
	}
	return brig.Errorf(brig.InvalidArgument, "the body ended before it was whole").Because(err)
}

// SendFile sends the header and the body. A negative length means that the
// length is unknown. If it returns an error, the caller must abort the connection,
// because the response would look complete otherwise.
func SendFile(w http.ResponseWriter, r *http.Request, body io.Reader, length int64) error {
	if r.Method == http.MethodHead {
		return nil
	}
	sent, err := io.Copy(w, body)
	if err == nil && sent < length {
		err = fmt.Errorf("%d of %d bytes: %w", sent, length, io.ErrUnexpectedEOF)
	}
	switch {
	case err == nil:
		return nil
	case r.Context().Err() != nil:
		return brig.Errorf(brig.Canceled, "the client disconnected").Because(err)
	}
	return fmt.Errorf("send file: %w", err)
}
