package ui

import (
	"archive/zip"
	"bytes"
	"embed"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path"
	"strconv"
	"strings"

	"github.com/brig-run/brig/api/httpapi"
)

// site contains site.zip, if make docs-site has built it.
//
//go:embed all:site
var site embed.FS

// DocsPrefix is the path of the documentation.
const DocsPrefix = "/docs/"

// IsDocsRequest reports whether a request is for the documentation.
func IsDocsRequest(r *http.Request) bool {
	return strings.HasPrefix(r.URL.Path, DocsPrefix) || r.URL.Path == strings.TrimSuffix(DocsPrefix, "/")
}

// NewDocs returns the documentation site. It needs no key: the pages are public,
// and the same for each caller, so pages of other sites may link to each of them. hosts
// are the server's names for browsers.
func NewDocs(log *slog.Logger, hosts []string) http.Handler {
	archive, err := site.ReadFile("site/site.zip")
	if err != nil {
		archive = nil // the site was not built
	}
	return httpapi.Wrap(log, nil, httpapi.Guard(hosts, DocsPrefix+"*", serveDocs(archive)))
}

// serveDocs serves the pages in a ZIP archive. It streams them, so that a request
// for a large page needs no more memory than one for a small page.
func serveDocs(archive []byte) http.Handler {
	pages := map[string]*zip.File{}
	if z, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive))); err == nil {
		for _, f := range z.File {
			pages[f.Name] = f
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !startPage(w, r, "the documentation") {
			return
		}
		name, below := strings.CutPrefix(r.URL.Path, DocsPrefix)
		page := pages[name]
		switch {
		case !below:
			http.Redirect(w, r, DocsPrefix, http.StatusFound)
		case len(pages) == 0:
			message(w, "The documentation is not in this build", "It is built with Python's pip: <code>make docs-site build</code>. The source of its pages "+
				`is in <a href="https://github.com/brig-run/brig/tree/main/docs">the folder docs</a> of the repository.`)
		case name == "":
			sendPage(w, r, pages["index.html"])
		case page == nil:
			message(w, "There is no such page", `See <a href="`+DocsPrefix+`">the start page</a>, which has a search.`)
		default:
			sendPage(w, r, page)
		}
	})
}

// sendPage sends a file of the archive. A client that accepts gzip receives the
// compressed bytes of the archive, because both formats use DEFLATE.
func sendPage(w http.ResponseWriter, r *http.Request, f *zip.File) {
	if f == nil {
		http.NotFound(w, r)
		return
	}
	h := w.Header()
	tag := fmt.Sprintf(`"%08x-%x"`, f.CRC32, f.UncompressedSize64)
	h.Set("ETag", tag)
	h.Set("Vary", "Accept-Encoding")
	h.Set("Cache-Control", "no-cache") // the next version of brig has other pages at the same addresses
	if strings.Contains(r.Header.Get("If-None-Match"), tag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Type", contentType(f.Name))
	compressed := f.Method == zip.Deflate && strings.Contains(r.Header.Get("Accept-Encoding"), "gzip")
	open := f.Open
	if compressed {
		h.Set("Content-Encoding", "gzip")
		open = func() (io.ReadCloser, error) { return openGzip(f) }
	} else {
		h.Set("Content-Length", strconv.FormatUint(f.UncompressedSize64, 10))
	}
	if r.Method == http.MethodHead {
		return
	}
	body, err := open()
	if err != nil {
		httpapi.Fail(w, r, err)
		return
	}
	defer body.Close()
	_, _ = io.Copy(w, body) // the client may have disconnected
}

// openGzip returns the gzip form of a compressed file.
func openGzip(f *zip.File) (io.ReadCloser, error) {
	raw, err := f.OpenRaw()
	if err != nil {
		return nil, err
	}
	header := []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff}
	trailer := binary.LittleEndian.AppendUint32(nil, f.CRC32)
	trailer = binary.LittleEndian.AppendUint32(trailer, uint32(f.UncompressedSize64))
	return io.NopCloser(io.MultiReader(bytes.NewReader(header), raw, bytes.NewReader(trailer))), nil
}

// contentType returns the type of a file by its name, independently of the types
// that this machine knows. Files that browsers do not display are text.
func contentType(name string) string {
	switch path.Ext(name) {
	case ".html":
		return "text/html; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".json":
		return "application/json"
	case ".svg":
		return "image/svg+xml"
	case ".png":
		return "image/png"
	default:
		return "text/plain; charset=utf-8"
	}
}
