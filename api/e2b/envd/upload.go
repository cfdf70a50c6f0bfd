package envd

import (
	"compress/gzip"
	"io"
	"mime"
	"mime/multipart"
	"net/http"

	"github.com/brig-run/brig"
)

// uploadedFile is the response for one file. Further fields are not permitted.
type uploadedFile struct {
	Path     string            `json:"path"`
	Name     string            `json:"name"`
	Type     string            `json:"type"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

func toUploaded(e *brig.Entry) uploadedFile {
	return uploadedFile{Path: e.Path, Name: e.Name, Type: "file", Metadata: e.Metadata}
}

// maxFiles limits the number of files in one request.
const maxFiles = 10_000

// upload handles POST /files.
func (e *Envd) upload(w http.ResponseWriter, r *http.Request) {
	meta, err := metadata(r.Header)
	if err != nil {
		e.fail(w, r, "", err)
		return
	}
	in := io.Reader(r.Body)
	switch encoding := r.Header.Get("Content-Encoding"); encoding {
	case "", "identity":
	case "gzip":
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			writeError(w, http.StatusBadRequest, "the body is not gzip")
			return
		}
		in = z
	default:
		writeError(w, http.StatusBadRequest, "unsupported content encoding: "+truncate(encoding))
		return
	}
	u := &uploadRequest{e: e, w: w, r: r, meta: meta, seen: map[string]bool{}, out: []uploadedFile{}}
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case err != nil:
		writeError(w, http.StatusBadRequest, "the content type cannot be read")
	case kind == "application/octet-stream" && !r.URL.Query().Has("path"):
		writeError(w, http.StatusBadRequest, "the query has no path")
	case kind == "application/octet-stream":
		if u.file(r.URL.Query().Get("path"), in) {
			answer(w, http.StatusOK, u.out)
		}
	case kind == "multipart/form-data" && params["boundary"] != "":
		if u.storeParts(multipart.NewReader(in, params["boundary"])) {
			answer(w, http.StatusOK, u.out)
		}
	default:
		writeError(w, http.StatusBadRequest, "unsupported content type: "+truncate(kind))
	}
}

// uploadRequest handles the uploaded files of one request.
type uploadRequest struct {
	e    *Envd
	w    http.ResponseWriter
	r    *http.Request
	meta map[string]string
	seen map[string]bool
	out  []uploadedFile
}

// storeParts stores every file of a form and reports whether it succeeded. If
// it fails, it has already answered with the error.
func (u *uploadRequest) storeParts(form *multipart.Reader) bool {
	q := u.r.URL.Query()
	for {
		part, err := form.NextPart()
		if err == io.EOF {
			return true
		}
		if err != nil {
			writeError(u.w, http.StatusBadRequest, "the form cannot be read")
			return false
		}
		field, name, err := disposition(part.Header.Get("Content-Disposition"))
		if err != nil {
			u.e.fail(u.w, u.r, "", err)
			return false
		}
		if field != "file" {
			continue
		}
		if q.Has("path") {
			name = q.Get("path")
		} else if name == "" {
			writeError(u.w, http.StatusBadRequest, "a file has no name, and the query no path")
			return false
		}
		if len(u.out) >= maxFiles {
			writeError(u.w, http.StatusBadRequest, "these are too many files")
			return false
		}
		if !u.file(name, part) {
			return false
		}
	}
}

// file stores one file and reports whether it succeeded. If it fails, it has
// already answered with the error.
func (u *uploadRequest) file(name string, content io.Reader) bool {
	p, ok := u.e.filePath(u.w, u.r, u.r.URL.Query().Get("username"), name)
	if !ok {
		return false
	}
	if u.seen[p.Name] {
		writeError(u.w, http.StatusBadRequest, "path '"+p.Name+"' is there twice: every file needs its own")
		return false
	}
	u.seen[p.Name] = true
	// An error while reading the body is a client error. The Service reports
	// errors of the file itself.
	body := &source{r: content}
	written, err := u.e.service.Files(callOf(u.r.Context()).box.ID).Write(u.r.Context(), p, brig.FileWrite{Metadata: u.meta}, body)
	switch {
	case body.err != nil:
		writeError(u.w, http.StatusBadRequest, "the body ends too early or cannot be read")
		return false
	case err != nil:
		u.e.fail(u.w, u.r, p.Name, err)
		return false
	}
	u.out = append(u.out, toUploaded(written))
	return true
}

// source is a reader that records the error that ended reading.
type source struct {
	r   io.Reader
	err error
}

// Read implements io.Reader.
func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}
