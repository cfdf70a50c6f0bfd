package client

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/v1"
)

// volumeCalls are the calls for volumes.
type volumeCalls struct{ *conn }

func volumePath(ref string) string { return "/v1/volumes/" + escapeSegment(ref) }

// CreateVolume implements brig.Service.
func (c volumeCalls) CreateVolume(ctx context.Context, name string, size int64) (*brig.Volume, error) {
	return c.volume(ctx, request{method: http.MethodPost, path: "/v1/volumes"}, v1.VolumeRequest{Name: name, Size: v1.Size(size)})
}

// volume sends a request whose response is a volume.
func (c volumeCalls) volume(ctx context.Context, rq request, in any) (*brig.Volume, error) {
	var out v1.Volume
	if err := c.call(ctx, rq, in, &out); err != nil {
		return nil, err
	}
	return out.Domain(), nil
}

// Volumes implements brig.Service.
func (c volumeCalls) Volumes(ctx context.Context) ([]*brig.Volume, error) {
	var out v1.Volumes
	if err := c.call(ctx, request{method: http.MethodGet, path: "/v1/volumes"}, nil, &out); err != nil {
		return nil, err
	}
	list := []*brig.Volume{}
	for _, v := range out.Volumes {
		list = append(list, v.Domain())
	}
	return list, nil
}

// GetVolume implements brig.Service.
func (c volumeCalls) GetVolume(ctx context.Context, ref string) (*brig.Volume, error) {
	return c.volume(ctx, request{method: http.MethodGet, path: volumePath(ref)}, nil)
}

// RemoveVolume implements brig.Service.
func (c volumeCalls) RemoveVolume(ctx context.Context, ref string) error {
	return c.call(ctx, request{method: http.MethodDelete, path: volumePath(ref)}, nil, nil)
}

// VolumeFiles implements brig.Service.
func (c volumeCalls) VolumeFiles(ref string) brig.VolumeFiles { return volumeFiles{c.conn, ref} }

// volumeFiles implements brig.VolumeFiles.
type volumeFiles struct {
	c   *conn
	ref string
}

func (f volumeFiles) newRequest(method, path, rest string) request {
	return request{method: method, path: volumePath(f.ref) + "/files" + rest, query: url.Values{"path": {path}}}
}

// sendEntry sends a request whose response is an entry.
func (f volumeFiles) sendEntry(ctx context.Context, rq request, in any) (*brig.VolumeEntry, error) {
	var out v1.VolumeEntry
	if err := f.c.call(ctx, rq, in, &out); err != nil {
		return nil, err
	}
	return out.Domain(), nil
}

// Stat implements brig.VolumeFiles.
func (f volumeFiles) Stat(ctx context.Context, path string) (*brig.VolumeEntry, error) {
	return f.sendEntry(ctx, f.newRequest(http.MethodGet, path, "/stat"), nil)
}

// List implements brig.VolumeFiles.
func (f volumeFiles) List(ctx context.Context, path string, depth int) ([]*brig.VolumeEntry, error) {
	rq := f.newRequest(http.MethodGet, path, "")
	rq.query.Set("depth", strconv.Itoa(depth))
	var out v1.VolumeEntries
	if err := f.c.call(ctx, rq, nil, &out); err != nil {
		return nil, err
	}
	var list []*brig.VolumeEntry
	for _, e := range out.Entries {
		list = append(list, e.Domain())
	}
	return list, nil
}

// Read implements brig.VolumeFiles. The entry has only a path and a size.
func (f volumeFiles) Read(ctx context.Context, path string) (*brig.VolumeEntry, io.ReadCloser, error) {
	rq := f.newRequest(http.MethodGet, path, "/content")
	rq.accept = v1.Octets
	resp, err := f.c.send(ctx, rq)
	if err != nil {
		return nil, nil, err
	}
	if resp.ContentLength < 0 {
		resp.Body.Close()
		return nil, nil, f.c.connectionError(ctx, "the server's answer does not say how large the file is", nil)
	}
	return &brig.VolumeEntry{Path: path, Type: brig.RegularFile, Size: resp.ContentLength}, content{resp.Body, ctx, f.c}, nil
}

// MakeDir implements brig.VolumeFiles.
func (f volumeFiles) MakeDir(ctx context.Context, path string, o brig.VolumeWrite) (*brig.VolumeEntry, error) {
	rq := request{method: http.MethodPost, path: volumePath(f.ref) + "/files/mkdir"}
	return f.sendEntry(ctx, rq, v1.VolumeDirRequest{Path: path, VolumeAttributes: v1.FromVolumeAttributes(o.VolumeAttributes), Force: o.Force})
}

// Write implements brig.VolumeFiles.
func (f volumeFiles) Write(ctx context.Context, path string, o brig.VolumeWrite, r io.Reader) (*brig.VolumeEntry, error) {
	rq := f.newRequest(http.MethodPut, path, "/content")
	if o.Force {
		rq.query.Set("force", "true")
	}
	for name, id := range map[string]*uint32{"uid": o.UID, "gid": o.GID} {
		if id != nil {
			rq.query.Set(name, strconv.FormatUint(uint64(*id), 10))
		}
	}
	if o.Mode != nil {
		rq.query.Set("mode", strconv.FormatUint(uint64(*o.Mode), 8))
	}
	src := &source{r: r}
	rq.contentType, rq.body = v1.Octets, io.NopCloser(src) // the caller closes the reader
	// Returning from this function cancels the request and stops reading from r.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer src.stop()
	e, err := f.sendEntry(ctx, rq, nil)
	if failed := src.readError(); err != nil && failed != nil {
		return nil, fmt.Errorf("read content: %w", failed)
	}
	return e, err
}

// SetAttributes implements brig.VolumeFiles.
func (f volumeFiles) SetAttributes(ctx context.Context, path string, a brig.VolumeAttributes) (*brig.VolumeEntry, error) {
	rq := request{method: http.MethodPatch, path: volumePath(f.ref) + "/files"}
	return f.sendEntry(ctx, rq, v1.VolumeAttributesRequest{Path: path, VolumeAttributes: v1.FromVolumeAttributes(a)})
}

// Remove implements brig.VolumeFiles.
func (f volumeFiles) Remove(ctx context.Context, path string) error {
	return f.c.call(ctx, f.newRequest(http.MethodDelete, path, ""), nil, nil)
}
