package envd

import (
	"bufio"
	"context"
	"io"
	"mime"
	"net/http"
	"path"

	"github.com/brig-run/brig"
)

// place is where a request for a file leads. The user is that of the query.
func (e *Envd) place(w http.ResponseWriter, r *http.Request, user, name string) (brig.Path, bool) {
	c := *callOf(r.Context())
	if user != "" {
		c.user = user
	}
	if _, _, err := c.who(); err != nil {
		refuse(w, http.StatusUnauthorized, "error looking up user '"+clip(c.user)+"': user: unknown user "+clip(c.user))
		return brig.Path{}, false
	}
	p, err := c.path(name)
	if err != nil {
		e.fail(w, r, "", err)
		return p, false
	}
	return p, true
}

// download answers GET /files.
func (e *Envd) download(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	p, ok := e.place(w, r, q.Get("username"), q.Get("path"))
	if !ok {
		return
	}
	f := &file{ctx: r.Context(), files: e.service.Files(callOf(r.Context()).box.ID), path: p}
	entry, err := f.open()
	if err != nil {
		e.fail(w, r, p.Name, err)
		return
	}
	defer f.close()
	h := w.Header()
	head, _ := f.r.Peek(512) // an error comes again
	kind := mime.TypeByExtension(path.Ext(p.Name))
	if kind == "" {
		kind = http.DetectContentType(head)
	}
	h.Set("Content-Type", kind)
	h.Set("Content-Disposition", mime.FormatMediaType("inline", map[string]string{"filename": path.Base(p.Name)}))
	h.Set("Vary", "Accept-Encoding")
	// A browser must not run what a sandbox made as if it were ours.
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "sandbox")
	if f.size = entry.Size; f.size > 0 {
		http.ServeContent(w, r, "", entry.Modified, f)
	} else {
		// Files of /proc have no size, and yet there is something in them.
		w.WriteHeader(http.StatusOK)
		if r.Method != http.MethodHead {
			_, _ = io.Copy(w, f) // f remembers what went wrong
		}
	}
	if f.err != nil {
		e.note(r.Context(), f.err)
		callOf(r.Context()).out.abort()
	}
}

// file is a file in a sandbox that can be read from anywhere. It is opened
// again when what is wanted is not what comes next.
type file struct {
	ctx   context.Context
	files brig.Files
	path  brig.Path
	size  int64

	at  int64 // where the next Read is
	r   *bufio.Reader
	c   io.Closer
	rAt int64 // where r is
	err error
}

// open opens it where the next Read is.
func (f *file) open() (*brig.Entry, error) {
	f.close()
	entry, r, err := f.files.Read(f.ctx, f.path, f.at, -1)
	if err != nil {
		return nil, err
	}
	f.r, f.c, f.rAt = bufio.NewReader(r), r, f.at
	return entry, nil
}

func (f *file) close() {
	if f.c != nil {
		_ = f.c.Close() // it was only read
		f.c = nil
	}
}

// Read implements io.Reader.
func (f *file) Read(p []byte) (int, error) {
	if f.rAt != f.at {
		if _, err := f.open(); err != nil {
			f.err = err
			return 0, err
		}
	}
	n, err := f.r.Read(p)
	f.at, f.rAt = f.at+int64(n), f.rAt+int64(n)
	if err == io.EOF && f.at < f.size {
		err = io.ErrUnexpectedEOF // it has been cut since
	}
	if err != nil && err != io.EOF {
		f.err = err
	}
	return n, err
}

// Seek implements io.Seeker.
func (f *file) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += f.at
	case io.SeekEnd:
		offset += f.size
	}
	f.at = offset
	return offset, nil
}
