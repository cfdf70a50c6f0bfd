package rest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/door"
	"github.com/brig-run/brig/door/wire"
)

// archives are the media types of a tar archive, compressed or not. What it
// is, its first bytes say.
var archives = []string{
	wire.Tar, "application/octet-stream", "application/gzip", "application/x-gzip",
	"application/zstd", "application/x-compressed-tar",
}

func (a *api) images(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	list, err := a.Service.Images(r.Context())
	if err != nil {
		return err
	}
	return door.WriteJSON(w, http.StatusOK, fromImages(list))
}

func (a *api) getImage(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	i, err := a.Service.GetImage(r.Context(), param(r, "*"))
	if err != nil {
		return err
	}
	return door.WriteJSON(w, http.StatusOK, fromImage(i))
}

func (a *api) removeImage(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	if err := a.Service.RemoveImage(r.Context(), param(r, "*")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (a *api) importImage(w http.ResponseWriter, r *http.Request, q url.Values) error {
	if err := door.MediaType(r, archives...); err != nil {
		return err
	}
	door.LongBody(w)
	if ndjson, sse := accepts(r); ndjson || sse {
		// Progress is told while the archive is still coming.
		if err := bothWays(w); err != nil {
			return err
		}
	}
	return makeImage(w, r, func(ctx context.Context, report func(brig.Progress)) (*brig.Image, error) {
		return a.Service.ImportImage(ctx, q.Get("name"), archive{r.Body}, report)
	})
}

// archive is a body whose errors say that the client is at fault.
type archive struct{ body io.Reader }

// Read implements io.Reader.
func (a archive) Read(p []byte) (int, error) {
	n, err := a.body.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = bodyError(err)
	}
	return n, err
}

func (a *api) buildImage(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	var in wire.BuildRequest
	if err := door.ReadJSON(w, r, &in, false); err != nil {
		return err
	}
	return makeImage(w, r, func(ctx context.Context, report func(brig.Progress)) (*brig.Image, error) {
		return a.Service.BuildImage(ctx, toBuild(in), report)
	})
}

func (a *api) pullImage(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	var in wire.PullRequest
	if err := door.ReadJSON(w, r, &in, false); err != nil {
		return err
	}
	return makeImage(w, r, func(ctx context.Context, report func(brig.Progress)) (*brig.Image, error) {
		return a.Service.PullImage(ctx, toPull(in), report)
	})
}

// makeImage answers with the image that f makes, after its progress where the
// request accepts events.
func makeImage(w http.ResponseWriter, r *http.Request, f func(context.Context, func(brig.Progress)) (*brig.Image, error)) error {
	if ndjson, sse := accepts(r); !ndjson && !sse {
		i, err := f(r.Context(), func(brig.Progress) {})
		if err != nil {
			return err
		}
		return door.WriteJSON(w, http.StatusOK, fromImage(i))
	}
	s, ctx, stop := newStream(w, r)
	defer stop()
	i, err := f(ctx, func(p brig.Progress) { _ = s.send(wire.EventProgress, fromProgress(p)) })
	if err != nil {
		return s.end(nil, err)
	}
	return s.end(fromImage(i), nil)
}
