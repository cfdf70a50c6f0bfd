package workspace

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"strings"

	"github.com/brig-run/brig"
)

// openWithFiles returns a version and its files, including those captured
// outside /workspace. The keys are the absolute paths that callers see.
func (s *Store) openWithFiles(ctx context.Context, tenant, name string, version int) (*Snapshot, manifest, error) {
	id, version, err := s.Find(ctx, tenant, name, version)
	if err != nil {
		return nil, nil, err
	}
	snap, err := s.open(ctx, tenant, name, id, version)
	if err != nil {
		return nil, nil, err
	}
	all := manifest{}
	if snap.rec != nil && snap.rec.Outside != "" {
		outside, err := s.manifest(ctx, tenant, snap.rec.Outside)
		if err != nil {
			return nil, nil, damagedError(name, version, err)
		}
		for p, e := range outside {
			all[Printable("/"+p)] = e
		}
	}
	for p, e := range snap.files {
		all[Printable(mountPath+"/"+p)] = e
	}
	return snap, all, nil
}

// Files lists a version's files and links at and below a place, by their paths
// in a sandbox. An empty place means everywhere, and version 0 the newest.
func (s *Store) Files(ctx context.Context, tenant, name string, version int, place string) ([]brig.WorkspaceFile, error) {
	_, all, err := s.openWithFiles(ctx, tenant, name, version)
	if err != nil {
		return nil, err
	}
	shown := manifest{}
	for p, e := range all {
		if at := strings.TrimSuffix(place, "/"); p == at || strings.HasPrefix(p, at+"/") {
			shown[p] = e
		}
	}
	return listed(shown), nil
}

// Read opens a file of a version by a path from Files, and returns its size.
// The reader verifies the content: it fails at the end if the content was
// modified.
func (s *Store) Read(ctx context.Context, tenant, name string, version int, at string) (int64, io.ReadCloser, error) {
	snap, all, err := s.openWithFiles(ctx, tenant, name, version)
	if err != nil {
		return 0, nil, err
	}
	e := all[at]
	switch {
	case e == nil:
		return 0, nil, brig.Errorf(brig.NotFound, "version %d of workspace %q has no %q", snap.Number, name, Printable(at[:min(len(at), 100)])).
			WithHint("list its files to see what exists")
	case e.Type != brig.RegularFile:
		return 0, nil, brig.InvalidField("path", "%q is a %s", Printable(at), e.Type).WithHint("give the path of a file")
	}
	if e.Size == 0 {
		return 0, io.NopCloser(strings.NewReader("")), nil
	}
	r, err := s.o.Get(ctx, blobKey(tenant, e.digest))
	if errors.Is(err, ErrMissing) {
		return 0, nil, damagedError(name, snap.Number, err)
	}
	if err != nil {
		return 0, nil, unavailable(err)
	}
	c := &checked{r: r, left: e.Size, want: e.digest, hash: sha256.New()}
	return e.Size, struct {
		io.Reader
		io.Closer
	}{c, r}, nil
}
