package door

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door/wire"
)

// MaxBody bounds a JSON body. Archives are streamed and not bound by it.
const MaxBody = 64 << 20

// How long a client may take to send a body: one that has shown a key or a
// token, and one that has not.
const (
	bodyTimeout     = 2 * time.Minute
	strangerTimeout = 3 * time.Second
)

// hurry bounds how long r's body may take to come, read or not: it is a
// stranger's until AllowBody says otherwise. Without a body there is nothing
// to bound: then net/http reads on to notice the client's end, and a deadline
// would look like one.
func hurry(w http.ResponseWriter, r *http.Request, d time.Duration) {
	if r.Body != nil && r.Body != http.NoBody {
		// A writer that has no deadlines, as in tests, needs none.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(d))
	}
}

// AllowBody gives r's body the time that those have who have shown who they
// are. It is called before any of it is read.
func AllowBody(w http.ResponseWriter, r *http.Request) { hurry(w, r, bodyTimeout) }

// LongBody lifts the bound on how long a body may take, for one that is
// streamed.
func LongBody(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // as in hurry
}

// ReadJSON reads r's body into v, strictly. A body that is empty leaves v as
// it is when optional says so.
func ReadJSON(w http.ResponseWriter, r *http.Request, v any, optional bool) error {
	if r.ContentLength > 0 {
		if err := MediaType(r, wire.JSON); err != nil {
			return err // before it is read
		}
	}
	if r.ContentLength > MaxBody {
		return BodyError(&http.MaxBytesError{Limit: MaxBody})
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	if err != nil {
		return BodyError(err)
	}
	if len(body) == 0 {
		if optional {
			return nil
		}
		return brig.Errorf(brig.InvalidArgument, "the request has no body").WithHint("send a JSON object")
	}
	if err := MediaType(r, wire.JSON); err != nil {
		return err
	}
	return Decode(body, v)
}

// MediaType reports an error unless r's body is of one of the given types.
// Pages of other sites cannot send these without asking first.
func MediaType(r *http.Request, want ...string) error {
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

// BodyError translates what went wrong while reading a request's body.
func BodyError(err error) error {
	if tooBig, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return WithStatus(http.StatusRequestEntityTooLarge,
			brig.Errorf(brig.InvalidArgument, "the body is larger than %s", brig.FormatBytes(tooBig.Limit)))
	}
	return brig.Errorf(brig.InvalidArgument, "the body ended before it was whole").Because(err)
}
