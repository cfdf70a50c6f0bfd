package envd

import (
	"bufio"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"path"

	"github.com/brig-run/brig"
)

// filePath returns the path in a file request. user is the user in the query,
// if any.
func (e *Envd) filePath(w http.ResponseWriter, r *http.Request, user, name string) (brig.Path, bool) {
	c := *callOf(r.Context())
	if user != "" {
		c.user = user
	}
	p, err := c.path(r.Context(), name)
	if errors.Is(err, errUnknownUser) {
		writeError(w, http.StatusUnauthorized, "error looking up user '"+truncate(c.user)+"': user: unknown user "+truncate(c.user))
		return p, false
	}
	if err != nil {
		e.fail(w, r, "", err)
		return p, false
	}
	return p, true
}

// download handles GET /files.
func (e *Envd) download(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	p, ok := e.filePath(w, r, q.Get("username"), q.Get("path"))
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
	head, _ := f.r.Peek(512) // the next read returns the same error
	kind := mime.TypeByExtension(path.Ext(p.Name))
	if kind == "" {
		kind = http.DetectContentType(head)
	}
	h.Set("Content-Type", kind)
	h.Set("Content-Disposition", mime.FormatMediaType("inline", map[string]string{"filename": path.Base(p.Name)}))
	h.Set("Vary", "Accept-Encoding")
	// A browser must not run content of a sandbox in this server's origin.
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "sandbox")
	if f.size = entry.Size; f.size > 0 {
		http.ServeContent(w, r, "", entry.Modified, f)
	} else {
		// Files in /proc have size 0 but are not empty.
		w.WriteHeader(http.StatusOK)
		if r.Method != http.MethodHead {
			_, _ = io.Copy(w, f) // f records the error
		}
	}
	if f.err != nil {
		e.logInternal(r.Context(), f.err)
		callOf(r.Context()).out.abort()
	}
}

// file is a seekable file in a sandbox. If the next read is not at the current
// position, the file is opened again.
type file struct {
	ctx   context.Context
	files brig.Files
	path  brig.Path
	size  int64

	at  int64 // offset of the next Read
	r   *bufio.Reader
	c   io.Closer
	rAt int64 // offset of r
	err error
}

// open opens the file at the offset of the next Read.
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
		_ = f.c.Close() // the file was opened only for reading
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
		err = io.ErrUnexpectedEOF // the file has been truncated since it was opened
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
