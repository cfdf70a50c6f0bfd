package rest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/httpapi"
	"github.com/brig-run/brig/api/v1"
)

// imageAPI has the handlers for images.
type imageAPI struct{ *base }

// routes returns the routes of images.
func (a imageAPI) routes() []route {
	get, post, del := http.MethodGet, http.MethodPost, http.MethodDelete
	progress := []string{v1.EventProgress, v1.EventPing}
	return []route{
		{id: "list-images", method: get, pattern: "/v1/images", tag: "images", summary: "List images",
			handle: a.images, out: v1.Images{}},
		{id: "import-image", method: post, pattern: "/v1/images/import", tag: "images", summary: "Import a root file system, an OCI layout or a docker archive",
			handle: a.importImage, op: brig.OpImportImage, archive: true, out: v1.Image{}, events: progress,
			query: []parameter{{name: "name", doc: "name of the image", required: true, pattern: namePattern, example: "tools"}}},
		{id: "build-image", method: post, pattern: "/v1/images/build", tag: "images", summary: "Build an image from Debian packages",
			handle: a.buildImage, op: brig.OpBuildImage, in: v1.BuildRequest{}, out: v1.Image{}, events: progress},
		{id: "pull-image", method: post, pattern: "/v1/images/pull", tag: "images", summary: "Pull an image from a registry",
			handle: a.pullImage, op: brig.OpPullImage, in: v1.PullRequest{}, out: v1.Image{}, events: progress},
		{id: "tag-image", method: post, pattern: "/v1/images/tag", tag: "images", summary: "Give an image another name",
			handle: a.tagImage, op: brig.OpTagImage, in: v1.TagRequest{}, out: v1.Image{}},
		{id: "get-image", method: get, pattern: "/v1/images/*", tag: "images", summary: "Get an image by name or digest",
			handle: a.getImage, out: v1.Image{}},
		{id: "remove-image", method: del, pattern: "/v1/images/*", tag: "images", summary: "Remove an image that no sandbox uses",
			handle: a.removeImage, status: http.StatusNoContent},
	}
}

// archives are the media types of tar archives, with and without compression.
// The real format is detected from the first bytes.
var archives = []string{
	v1.Tar, "application/octet-stream", "application/gzip", "application/x-gzip",
	"application/zstd", "application/x-compressed-tar",
}

func (a imageAPI) images(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	list, err := a.Service.Images(r.Context())
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusOK, v1.FromImages(list))
}

func (a imageAPI) getImage(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	i, err := a.Service.GetImage(r.Context(), param(r, "*"))
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusOK, v1.FromImage(i))
}

func (a imageAPI) removeImage(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	if err := a.Service.RemoveImage(r.Context(), param(r, "*")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (a imageAPI) importImage(w http.ResponseWriter, r *http.Request, q url.Values) error {
	if err := httpapi.CheckMediaType(r, archives...); err != nil {
		return err
	}
	httpapi.AllowLongBody(r)
	if ndjson, sse := acceptedFormat(r); ndjson || sse {
		// The server sends progress while the archive is still arriving.
		if err := enableFullDuplex(w); err != nil {
			return err
		}
	}
	return makeImage(w, r, func(ctx context.Context, report func(brig.Progress)) (*brig.Image, error) {
		return a.Service.ImportImage(ctx, q.Get("name"), archive{r.Body}, report)
	})
}

// archive is a body whose read errors are client errors.
type archive struct{ body io.Reader }

// Read implements io.Reader.
func (a archive) Read(p []byte) (int, error) {
	n, err := a.body.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = bodyError(err)
	}
	return n, err
}

func (a imageAPI) buildImage(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	var in v1.BuildRequest
	if err := httpapi.ReadJSON(w, r, &in, false); err != nil {
		return err
	}
	return makeImage(w, r, func(ctx context.Context, report func(brig.Progress)) (*brig.Image, error) {
		return a.Service.BuildImage(ctx, in.Domain(), report)
	})
}

func (a imageAPI) pullImage(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	var in v1.PullRequest
	if err := httpapi.ReadJSON(w, r, &in, false); err != nil {
		return err
	}
	return makeImage(w, r, func(ctx context.Context, report func(brig.Progress)) (*brig.Image, error) {
		return a.Service.PullImage(ctx, brig.ImagePull(in), report)
	})
}

func (a imageAPI) tagImage(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	var in v1.TagRequest
	if err := httpapi.ReadJSON(w, r, &in, false); err != nil {
		return err
	}
	i, err := a.Service.TagImage(r.Context(), in.Image, in.Name)
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusOK, v1.FromImage(i))
}

// makeImage responds with the image that f creates. If the request accepts
// events, it sends f's progress before the image.
func makeImage(w http.ResponseWriter, r *http.Request, f func(context.Context, func(brig.Progress)) (*brig.Image, error)) error {
	if ndjson, sse := acceptedFormat(r); !ndjson && !sse {
		i, err := f(r.Context(), func(brig.Progress) {})
		if err != nil {
			return err
		}
		return httpapi.WriteJSON(w, http.StatusOK, v1.FromImage(i))
	}
	s, ctx, stop := newStream(w, r)
	defer stop()
	i, err := f(ctx, func(p brig.Progress) { _ = s.send(v1.EventProgress, v1.Progress(p)) })
	if err != nil {
		return s.end(nil, err)
	}
	return s.end(v1.FromImage(i), nil)
}
